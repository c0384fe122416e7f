"""Sample the operating system and the server beside a load."""
