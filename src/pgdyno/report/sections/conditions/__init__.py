"""Build the sections on what a record was measured under: machine, places, server, checks before the first trial."""
