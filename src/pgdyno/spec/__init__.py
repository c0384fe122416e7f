"""What was asked for: studies, servers, workloads. TOML in, typed values or errors that name the key out."""
