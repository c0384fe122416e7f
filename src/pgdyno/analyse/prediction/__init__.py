"""Predict what a trial should show, from measured inputs and models."""
