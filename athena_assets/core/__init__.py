"""The exactly-once protocol: values, transitions and generators that yield effects. No I/O, no clock, no randomness.

Where to begin: `protocol.publish` is the whole story of one request; `register` is what S3 remembers; `effects` is
everything that the protocol can ask of the world.
"""
