"""Sections on a search for the largest rate that holds a latency limit."""
