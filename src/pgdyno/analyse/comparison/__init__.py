"""Variants against a reference: rounds, pairs, the e-process, verdicts."""
