"""Conducts an experiment: which trial is next, when to stop, how to resume, what progress to show."""
