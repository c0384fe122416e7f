"""Disk benchmarks: fio and PostgreSQL's own test programs."""
