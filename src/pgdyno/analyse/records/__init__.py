"""Records side by side: whether they may be compared, and how they differ."""
