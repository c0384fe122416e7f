"""Sections on several records: side by side, tiers, the journal."""
