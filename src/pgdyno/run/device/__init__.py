"""Benchmark disks with fio and PostgreSQL's own test programs."""
