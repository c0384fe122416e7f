"""Derive each setting, one module per layer."""
