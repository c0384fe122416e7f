"""Price machines and their transactions, from prices with a date and a source. Pure."""
