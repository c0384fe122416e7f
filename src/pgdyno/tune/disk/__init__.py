"""The disk that settings are derived for: measured, declared, observed or of a known class."""
