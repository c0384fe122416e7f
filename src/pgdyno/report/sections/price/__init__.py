"""Sections on cost."""
