"""Search for the highest rate that keeps a latency limit."""
