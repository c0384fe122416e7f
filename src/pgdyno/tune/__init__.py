"""Derive settings, with reasons, from the properties of machine, disk, workload and server. Pure."""
