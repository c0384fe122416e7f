"""This machine: facts, processes, clocks, and how programs are started on it."""
