"""Plan a study: its ordered steps with seeds and predicted seconds. Pure: the same study gives the same plan."""
