"""Parse what pgbench prints."""
