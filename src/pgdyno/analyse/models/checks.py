"""Check the inputs of models: bad input is a ValueError, because it is a mistake of the caller and not of a user."""

from __future__ import annotations

import math


def check_positive(**values: float) -> None:
    """Raise a ValueError that names the first value that is not above 0."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} is {value}, which is not above 0")


def check_not_negative(**values: float) -> None:
    """Raise a ValueError that names the first value that is below 0."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} is {value}, which is below 0")
