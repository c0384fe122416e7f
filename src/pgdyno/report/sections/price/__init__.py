"""Build the sections on cost."""
