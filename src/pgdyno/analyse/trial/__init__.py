"""Analyse one trial: its steady part, TPS, latency percentiles, charts."""
