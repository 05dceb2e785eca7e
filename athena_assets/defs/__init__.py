"""This deployment's targets. Everything in this folder is loaded by definitions.py."""
