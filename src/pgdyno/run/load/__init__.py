"""pgbench: command lines, the running process, its transaction log."""
