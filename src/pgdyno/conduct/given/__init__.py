"""Conduct studies on a server of the user's that a connection string names."""
