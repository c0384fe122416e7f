"""Sections on derived settings as `pgdyno tune` shows them, and as files."""
