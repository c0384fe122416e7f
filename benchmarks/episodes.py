"""How often episodes are seen where there are none, and how often where there are: simulated seconds of a trial.

Each series is AR(1) noise around a level, at 1 s. Nothing is in a quiet one: every episode is false. In the others a drop
of so much is planted at 55 % of the trial, which stays; the interval of its size should hold the true one. Some have single
seconds besides that stand out at random moments, and mean nothing; some stand still for a while; some have a cycle. Last, a
cause is asked for of drops that never were, at many moments of the stored quiet record: every one named is false.

    python benchmarks/episodes.py [--quick]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from figures import say_share

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgdyno.analyse.episodes.causes import find_causes
from pgdyno.analyse.episodes.detection import find_episodes
from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from tests.analyse.planted_episodes import DEVICE, cliff, read_planted

_LENGTHS_S = (30, 60, 120, 300)
_NOISES = ((0.5, 0.05), (0.5, 0.2), (0.8, 0.1), (0.95, 0.05), (0.95, 0.2))
_DROPS = (0.1, 0.2, 0.4)
_LEVEL_TPS = 3000.0
# Share of the seconds that stand out, and what each is multiplied by.
_DIPS = ((0.03, 0.4), (0.05, 0.4), (0.1, 0.4))
_SPIKES = ((0.05, 5.0), (0.03, 10.0))
# Length of the trial and of its standstill, the share of the level that is left in it, and the coefficient of variation.
_STANDSTILLS = (
    *(
        (length, still, 0.0, 0.05)
        for length, still in ((60, 16), (600, 15), (600, 16), (600, 300), (3600, 16), (3600, 300))
    ),
    *((120, 30, share, variation) for share, variation in ((0.05, 0.05), (0.05, 0.2), (0.1, 0.05), (0.12, 0.05))),
)
# Of each 12 s of 120 so many are at this share of the level; a stall of so many seconds besides; the level after 55 %.
_CYCLES = {
    "plain": (4, 0.6, 0, 1.0),
    "stall1": (4, 0.6, 1, 1.0),
    "stall5": (4, 0.6, 5, 1.0),
    "stall16": (4, 0.6, 16, 1.0),
    "stall30": (4, 0.6, 30, 1.0),
    "deep": (8, 0.05, 0, 1.0),
    "dips": (2, 0.5, 0, 1.0),
    "dips_cliff": (2, 0.5, 0, 0.7),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    count = 40 if parser.parse_args().quick else 400
    began = time.perf_counter()
    _say_false(count)
    _say_false_beside_single_seconds(count)
    _say_found(count)
    _say_standstills(count // 4)
    _say_cycles(count // 4)
    _say_false_causes()
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


def _say_false(count: int) -> None:
    random = np.random.default_rng(1)
    for length in _LENGTHS_S:
        for correlation, variation in _NOISES:
            found = [_look(_make(random, length, correlation, variation)) for _ in range(count)]
            name = f"episodes.false.{length}s.correlation{correlation}.variation{variation}"
            say_share(f"{name}.cliff", list(map(_has_cliff, found)), target="<= 0.05")
            say_share(f"{name}.any", list(map(bool, found)))
        heavy = [_look(_make(random, length, 0.7, 0.1, is_heavy=True)) for _ in range(count)]
        say_share(f"episodes.false.{length}s.heavy_tails.cliff", list(map(_has_cliff, heavy)), target="<= 0.05")
        two = [
            _look(_make(random, length, 0.95, 0.07) + _make(random, length, 0.0, 0.07) - _LEVEL_TPS)
            for _ in range(count)
        ]
        say_share(f"episodes.false.{length}s.two_noises.cliff", list(map(_has_cliff, two)), target="<= 0.05")


def _say_false_beside_single_seconds(count: int) -> None:
    random = np.random.default_rng(3)
    for length in _LENGTHS_S:
        for share, factor in _DIPS:
            found = [_look(_stand_out(random, _make(random, length, 0.0, 0.04), share, factor)) for _ in range(count)]
            say_share(f"episodes.false.{length}s.dips{share}.any", list(map(bool, found)), target="<= 0.05")
        for share, factor in _SPIKES:
            found = [
                _look(
                    _stand_out(random, np.exp(random.normal(2.0, 0.2, length)), share, factor), metric="latency_p99_ms"
                )
                for _ in range(count)
            ]
            say_share(f"episodes.false.{length}s.spikes{share}.any", list(map(bool, found)), target="<= 0.05")


def _say_found(count: int) -> None:
    random = np.random.default_rng(2)
    for length in _LENGTHS_S:
        for variation in (0.05, 0.1):
            for drop in _DROPS:
                seen = []
                for _ in range(count):
                    values = _make(random, length, 0.5, variation)
                    values[round(0.55 * length) :] *= 1 - drop
                    seen.append([one for one in _look(values) if one.kind is EpisodeKind.CLIFF])
                found = [cliffs for cliffs in seen if cliffs]
                name = f"episodes.found.{length}s.variation{variation}.drop{drop}"
                say_share(name, list(map(bool, seen)))
                covered = [any(_holds(one, -drop) for one in cliffs) for cliffs in found]
                if len(found) >= count / 4:
                    say_share(f"{name}.covered", covered)

    for length in _LENGTHS_S:
        seen = []
        for _ in range(count):
            values = _stand_out(random, _make(random, length, 0.5, 0.05), 0.05, 0.4)
            values[round(0.55 * length) :] *= 0.6
            seen.append([one for one in _look(values) if one.kind is EpisodeKind.CLIFF])
        say_share(f"episodes.found.{length}s.dips.drop0.4", list(map(bool, seen)))


def _say_standstills(count: int) -> None:
    """Say how often a standstill is found to the second, and how often anything else beside it."""
    random = np.random.default_rng(4)
    for length, still, share, variation in _STANDSTILLS:
        seen = []
        for _ in range(count):
            values = _make(random, length, 0.5, variation)
            begin = (length - still) // 2
            values[begin : begin + still] *= share
            found = _look(values)
            stalls = [one for one in found if one.kind is EpisodeKind.STALL]
            is_found = [(one.from_s, one.until_s) for one in stalls] == [(begin, begin + still)]
            seen.append((is_found, len(found) > len(stalls)))
        name = f"episodes.standstill.{length}s.{still}s" + (f".at{share}.variation{variation}" if share else "")
        say_share(f"{name}.found", [is_found for is_found, _ in seen], target=None if share else ">= 0.95")
        say_share(f"{name}.more", [is_more for _, is_more in seen], target=None if share else "<= 0.05")


def _say_cycles(count: int) -> None:
    """Say how often a cycle of 12 s is found with its period."""
    random, at = np.random.default_rng(5), np.arange(120)
    for name, (low, share, still, after) in _CYCLES.items():
        seen = []
        for i in range(count):
            values = np.where((at - 5) % 12 < low, share, 1.0) * _make(random, 120, 0.5, 0.05)
            begin = 30 + i % 40
            values[begin : begin + still] = 0.0
            values[66:] *= after
            seen.append(any(abs((one.period_s or 0.0) - 12) < 1 for one in _look(values)))
        say_share(f"episodes.cycle.{name}.found", seen)


def _say_false_causes() -> None:
    quiet = read_planted("quiet")
    for change, length_s in ((-0.15, None), (-0.4, None), (-0.95, 3.0)):
        moments = np.arange(4.0, 20.0, 0.25)
        imagined = [
            cliff(change, at_s=float(at), until_s=None if length_s is None else float(at) + length_s) for at in moments
        ]
        named = [bool(one.named) for one in find_causes(quiet, imagined, device=DEVICE)]
        say_share(f"episodes.false_cause.change{change}", named, target="<= 0.05")


def _make(
    random: np.random.Generator, length: int, correlation: float, variation: float, *, is_heavy: bool = False
) -> np.ndarray:
    drawn = random.standard_t(3, length + 100) / np.sqrt(3) if is_heavy else random.normal(size=length + 100)
    noise = np.zeros(length + 100)
    for t in range(1, length + 100):
        noise[t] = correlation * noise[t - 1] + drawn[t]
    return _LEVEL_TPS * np.maximum(1 + variation * np.sqrt(1 - correlation**2) * noise[100:], 0.0)


def _stand_out(random: np.random.Generator, values: np.ndarray, share: float, factor: float) -> np.ndarray:
    return np.where(random.random(len(values)) < share, factor, 1.0) * values


def _look(values: np.ndarray, *, metric: str = "tps") -> tuple[Episode, ...]:
    return find_episodes(np.arange(len(values)) + 0.5, values.tolist(), metric=metric).episodes


def _has_cliff(episodes: tuple[Episode, ...]) -> bool:
    return any(one.kind is EpisodeKind.CLIFF for one in episodes)


def _holds(one: Episode, change: float) -> bool:
    return (
        one.change_low_ratio is not None
        and one.change_high_ratio is not None
        and one.change_low_ratio <= change <= one.change_high_ratio
    )


if __name__ == "__main__":
    main()
