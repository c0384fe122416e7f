"""Estimate what a machine can carry of a load: bounds, best number of clients, projections."""
