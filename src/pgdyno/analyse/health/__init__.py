"""The counters that DBAs watch, against their thresholds."""
