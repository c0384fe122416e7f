"""What pgbench prints: parsers of its output."""
