"""Sections on disks: cards, layouts, what a load used of a disk."""
