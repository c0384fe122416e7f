"""Check the counters that DBAs watch against their thresholds."""
