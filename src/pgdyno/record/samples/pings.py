"""Read the round trips of empty statements that `run/sample/pinger.py` timed beside a load."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from pgdyno.record.samples.series import Floats

PING = "ping"
"""The source of what is missing of it."""
PINGS_FILE = "pings.jsonl"


class Pings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The round trips of a trial, in their order."""

    began_s: Floats
    """CLOCK_MONOTONIC."""
    round_trip_s: Floats


def read_pings(folder: Path) -> Pings:
    """Read the round trips of a trial; a last line that was cut short is left out.

    Raises:
        OSError: There is no such file.
        ValueError: It is damaged.
    """
    whole, _, _ = (folder / PINGS_FILE).read_bytes().rpartition(b"\n")
    pairs = [msgspec.json.decode(line, type=tuple[float, float]) for line in whole.splitlines()[1:]]
    began_s, round_trip_s = np.array(pairs, dtype=float).reshape(-1, 2).T
    return Pings(began_s=began_s, round_trip_s=round_trip_s)
