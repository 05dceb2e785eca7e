"""The real protocol code in a world made of plain values: every interleaving within bounds, and long random histories.

`world.py` is S3, Athena and the upstream tables; `invariants.py` says what must hold in it; `programs.py` turns callers
into automata that can be stepped and compared; `explorer.py` takes every step there is, `simulator.py` random ones.
"""
