"""Hold what was observed of a machine: disks, preflight facts, tunable settings."""
