"""pgbench's transaction log: parsed, packed, counted."""
