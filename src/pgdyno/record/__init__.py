"""Hold what was measured: immutable types, parsers from text to values, and the files of a record with their versions.

This room reads and writes the files of a record. It starts no process and judges nothing.
"""
