"""Run pgbench: command lines, the process and its transaction log."""
