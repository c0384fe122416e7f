"""Disk cards, and parsers of what fio and the test programs print."""
