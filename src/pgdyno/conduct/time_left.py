"""Decide whether one more turn of a study fits into the announced time, by how long its turns take on this machine."""

from __future__ import annotations


def find_overrun_s(now_s: float, *, began_s: float, allowed_s: float, turns: int) -> float:
    """Return by how much too late one more turn would end if it took as long as those before it; positive: do not begin it.

    Ending half a turn late is as near to what was announced as ending half a turn early.

    Args:
        now_s: The time between two turns, on the clock of `began_s`.
        began_s: When the first turn began.
        allowed_s: The time that was announced for all of them.
        turns: How many are over; at least one.
    """
    passed_s = now_s - began_s
    return passed_s + passed_s / turns / 2 - allowed_s
