"""Where the clients' time goes, and which resource limits a load."""
