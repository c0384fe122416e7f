"""What commands do with a server of the user's, which a connection string names."""
