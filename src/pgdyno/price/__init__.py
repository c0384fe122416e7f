"""What a machine costs, and what its transactions cost: arithmetic over prices that have a date and a source. Pure."""
