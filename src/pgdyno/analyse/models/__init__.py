"""Predict what PostgreSQL should do from measured inputs; each model states what it leaves out."""
