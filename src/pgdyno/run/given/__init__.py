"""Read a server that the user named, and work there in databases of pgdyno's own; nothing else of it is changed."""
