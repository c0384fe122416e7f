"""Measure where the time of a trial's transactions goes."""
