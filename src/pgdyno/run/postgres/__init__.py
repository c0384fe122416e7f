"""What pgdyno needs of any PostgreSQL, its own or one that the user named: programs, addresses, SQL, and its error messages."""
