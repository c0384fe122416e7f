"""Detect cliffs, stalls, cycles and declines within a trial, and find their causes."""
