"""Whether one more turn of a study fits into the time that was announced, by how long its turns take on this machine."""

from __future__ import annotations


def find_overrun_s(now_s: float, *, began_s: float, allowed_s: float, turns: int) -> float:
    """By how much too late one more turn would end, as long as those before it; positive: better none.

    Ending half a turn late is as near to what was announced as ending half a turn early.

    Args:
        now_s: Between two turns, on the clock that `began_s` is of.
        began_s: When the first turn began.
        allowed_s: The time that was announced for all of them.
        turns: Those that are over; at least one.
    """
    passed_s = now_s - began_s
    return passed_s + passed_s / turns / 2 - allowed_s
