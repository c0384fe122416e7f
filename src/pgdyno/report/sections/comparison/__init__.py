"""Sections on compared variants: answers, tables, method, client sweep."""
