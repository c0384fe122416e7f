"""Read what the user requests: studies, hosts, prices. TOML becomes typed values, or errors that name the key."""
