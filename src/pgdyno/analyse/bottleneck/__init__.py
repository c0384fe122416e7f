"""Diagnose which resource limits a load, from where its clients' time goes."""
