"""Parse, pack and summarise pgbench's transaction log."""
