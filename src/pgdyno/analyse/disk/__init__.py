"""Estimate what a disk can do, measured and declared, and how much of it a trial used."""
