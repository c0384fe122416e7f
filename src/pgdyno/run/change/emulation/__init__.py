"""Emulate the disks and the size of a declared machine on this one, and undo it."""
