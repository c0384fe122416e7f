"""What will be done: ordered steps with seeds, order and predicted seconds. Pure: the same question gives the same plan."""
