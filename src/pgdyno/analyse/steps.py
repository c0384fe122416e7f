"""Cut the course of a load into steps of some seconds, whose means can stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgdyno.analyse.series import Series

# A step of five seconds is what the published cases print; a long trial has longer ones.
_STEP_S, _MOST_STEPS = 5, 60


def choose_step_s(lines: Sequence[Series]) -> float:
    """Choose the length of the steps in which the courses of some trials are shown side by side, in whole seconds."""
    longest_s = max((line.t_s[-1] for line in lines if line.t_s), default=0.0)
    return _STEP_S * max(1, -(-longest_s // (_STEP_S * _MOST_STEPS)))


def mean_by_step(line: Series, step_s: float) -> list[float | None]:
    """Compute a series' mean in each whole step of time; None in a step that lacks a second.

    A load begins and ends within a second, so that its first and its last step may have one whole second less.

    Args:
        line: A value for each whole second.
        step_s: Length of a step, in whole seconds.
    """
    steps: dict[int, list[float | None]] = {}
    for t_s, value in zip(line.t_s, line.values, strict=True):
        steps.setdefault(int(t_s // step_s), []).append(value)
    count = int((line.t_s[-1] + 1.5) // step_s) if line.t_s else 0
    means: list[float | None] = []
    for step in range(count):
        values = steps.get(step, [])
        seen = [value for value in values if value is not None]
        least = step_s - 1 if step in {0, count - 1} else step_s
        is_whole = len(values) >= least and len(seen) == len(values)
        means.append(float(np.mean(seen)) if seen and is_whole else None)
    return means
