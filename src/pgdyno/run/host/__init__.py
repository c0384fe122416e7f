"""Read this machine's facts, processes and clocks, and start programs on it."""
