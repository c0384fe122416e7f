"""Conduct studies on servers of the user's, which a connection string names."""
