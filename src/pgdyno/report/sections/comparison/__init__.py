"""Build the sections on compared variants: answers, tables, method, client sweep."""
