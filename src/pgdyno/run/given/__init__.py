"""Read a server that the user named, without changing it."""
