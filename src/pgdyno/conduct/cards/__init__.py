"""Measure the disk cards of a study, and find those that are there already."""
