"""Build the sections on several records: side by side, tiers, the journal."""
