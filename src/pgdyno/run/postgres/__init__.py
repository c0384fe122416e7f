"""PostgreSQL as pgdyno uses any server, its own or the user's: programs, addresses, SQL, and error messages."""
