"""Describe the disk that settings are derived for: measured, observed, or assumed from its kind."""
