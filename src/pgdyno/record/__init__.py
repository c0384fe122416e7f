"""What was seen: immutable types, parsers from text to value, the files of a record and their versions.

Reads and writes files of a record; starts no process and never judges.
"""
