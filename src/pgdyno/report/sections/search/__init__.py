"""Build the sections on a search for the largest rate that holds a latency limit."""
