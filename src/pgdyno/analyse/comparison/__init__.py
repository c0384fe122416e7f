"""Compare variants with a reference: rounds, pairs, the e-process, verdicts."""
