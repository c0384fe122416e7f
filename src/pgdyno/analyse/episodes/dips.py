"""Tell single seconds that stand out from changes of level and cycles.

Noise that an autoregression describes has no seconds far below or above their neighbours. Where a trial has them, a few
that happen to lie close together, or at about equal distances, look like a change of level or a cycle. The same seconds
at random moments show how strong such a look can be: a shape that chance does not explain is stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.episodes.fit import Floats, measure_strength
from pgdyno.analyse.episodes.stalls import MAD, find_runs, take_medians

_AROUND_S = 7.0
_SHORT_S = 2.0
# How many longer runs chance may make of seconds in a series.
_MAX_BY_CHANCE = 0.02
_SPREADS = 4.5
_ARRANGEMENTS = 39
_SEED = 1


class Dips(msgspec.Struct, frozen=True, kw_only=True):
    """A series apart from the single seconds that stand out of it, in logarithms."""

    rest: Floats
    """The series with the level around it in place of each of them."""
    parts: tuple[Floats, ...]
    """Distances from `rest`, by time: one for each observation, but those of a run in one piece."""

    @property
    def is_empty(self) -> bool:
        """True if no second stands out."""
        return not any(part.any() for part in self.parts)


def find_dips(logs: Floats, *, step_s: float) -> Dips:
    """Find the seconds that stand out; runs longer than chance makes them stay in the rest.

    Args:
        logs: Logarithms of the observations; shape (n,).
        step_s: Seconds from one to the next.
    """
    around = take_medians(logs, max(round(_AROUND_S / step_s), 1))
    apart = logs - around
    is_out = np.abs(apart) > _SPREADS * MAD * np.median(np.abs(apart))
    runs = tuple(find_runs(is_out))
    longest = _find_longest([stop - start for start, stop in runs], len(logs), int(_SHORT_S / step_s))
    rest, parts, end = logs.copy(), list[Floats](), 0
    for start, stop in runs:
        if stop - start <= longest:
            parts += [*np.zeros((start - end, 1)), apart[start:stop]]
            rest[start:stop], end = around[start:stop], stop
    return Dips(rest=rest, parts=(*parts, *np.zeros((len(logs) - end, 1))))


def _find_longest(lengths: Sequence[int], count: int, short: int) -> int:
    """Return the length up to which a run is explained by seconds that stand out independently, as short runs show them."""
    share = sum(length for length in lengths if length <= short) / count
    return max(short, int(math.log(count / _MAX_BY_CHANCE) / -math.log(share))) if share else short


def measure_chance(dips: Dips, average: Callable[[Floats], Floats]) -> float:
    """Return the greatest strength of any shape if the same seconds stand out at random moments.

    Source: a permutation test; what chance alone arranged is stronger in 1 of 40 series.

    Args:
        dips: The seconds that stand out.
        average: Turns logarithms of observations into those of the means that shapes are searched in.
    """
    random, count = np.random.default_rng(_SEED), len(dips.parts)
    return max(
        measure_strength(average(dips.rest + np.concatenate([dips.parts[i] for i in random.permutation(count)])))
        for _ in range(_ARRANGEMENTS)
    )
