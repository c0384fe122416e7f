"""Describe the part that each of several pgbenches has in a trial's load, and convert its times.

`loads/NAME/` of a trial has the files of one pgbench, on the load host NAME, for the part NAME, or for a part on a load host,
as PART+HOST: what it printed and its transactions; on a load host also the exchanges with that machine's clock. The samples of a
load host lie in `loads/HOST/`. Times in these files are of that machine. A transaction's stamp counts from the time of day there,
which pgbench reads once, as it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from pgdyno.record.generators.part import LoadPart
from pgdyno.record.samples.clock import ClockExchange, ClockFit, fit_clock, read_exchanges

LOADS_DIR = "loads"
CLOCK_FILE = "clock.jsonl"
PART_FILE = "load.json"
SAME_CLOCK = ClockFit(at_s=0.0, offset_s=0.0, drift_ratio=0.0, uncertainty_s=0.0, exchange_count=0)
"""Of a part that ran on the machine that pgdyno ran on."""
# What lies there before pgbench is asked for, and all that does where a load has fewer clients than there are hosts, or parts run
# on a host.
_WITHOUT_LOAD = frozenset({"transactions", "generator"})


def find_part_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the load hosts or parts that take part, below a trial's folder, in the order of their names."""
    return tuple(sorted(path for path in (folder / LOADS_DIR).glob("*") if path.is_dir() and _takes_part(path)))


def _takes_part(folder: Path) -> bool:
    return any(path.stem not in _WITHOUT_LOAD for path in folder.iterdir())


def read_part(folder: Path) -> LoadPart:
    """Read what is known of one of several pgbenches from its folder.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    return msgspec.json.decode((folder / PART_FILE).read_bytes(), type=LoadPart)


def read_part_clock(folder: Path, part: LoadPart) -> ClockFit:
    """Read how the clock of the machine that a part ran on differs from this machine's.

    Args:
        folder: The part's.
        part: What is known of it.

    Raises:
        OSError: The exchanges cannot be read.
        ValueError: They are damaged, or there is none.
    """
    if part.is_here:
        return SAME_CLOCK
    return fit_clock(read_exchanges(folder / CLOCK_FILE))


def find_clock_offset_s(part: LoadPart, clock: ClockFit) -> float:
    """Return what converts this machine's CLOCK_MONOTONIC to the stamps of a part's transactions, in the middle of its load."""
    end_s = part.start_far_s if part.end_far_s is None else part.end_far_s
    middle_near_s = clock.to_near(np.array([(part.start_far_s + end_s) / 2.0]))
    return part.epoch_offset_s + float(clock.offset_at(middle_near_s)[0])


def find_window_s(parts: Sequence[tuple[LoadPart, Sequence[ClockExchange]]]) -> tuple[float, float]:
    """Return from when until when all parts ran, on this machine's clock."""
    begins, ends = [], []
    for part, exchanges in parts:
        far_s = np.array([part.start_far_s, part.start_far_s if part.end_far_s is None else part.end_far_s])
        start_s, end_s = fit_clock(exchanges).to_near(far_s)
        begins.append(float(start_s) if part.release_near_s is None else part.release_near_s)
        ends.append(float(end_s))
    return max(begins), max(*begins, min(ends))
