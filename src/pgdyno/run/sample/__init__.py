"""Samplers of the operating system and the server, which run beside a load."""
