"""Reach other machines through the `ssh` program: one connection each, and programs that are sent there and leave nothing."""
