"""What was seen of a machine: disks, preflight, tunable settings."""
