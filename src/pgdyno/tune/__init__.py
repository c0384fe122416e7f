"""Derived settings: what machine, disk, workload and server were found to be, turned into values with reasons. Pure."""
