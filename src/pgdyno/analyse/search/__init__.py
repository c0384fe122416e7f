"""The largest rate that holds a latency limit."""
