"""Adapters between the protocol's effects and AWS, one module a service. The only place where boto3 is imported."""
