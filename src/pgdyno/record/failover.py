"""Read and write what a trial with a failover leaves: the instants of its steps, and the prober's writes.

`failover.json` has the instants, `probes.jsonl` each write that the prober tried: its number, when it was sent and when it
was answered or failed, on CLOCK_MONOTONIC, and why it failed. pgbench's second run, on the standby that took over, is below
`after/`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from pgdyno.record.durable import write_durably, writing
from pgdyno.record.samples.series import Floats
from pgdyno.spec.failover import FailoverKind

FAILOVER_FILE = "failover.json"
PROBES_FILE = "probes.jsonl"
AFTER_DIR = "after"


class FailoverRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a failover. Times are CLOCK_MONOTONIC."""

    kind: FailoverKind
    standby: str
    """The standby that took over."""
    told_s: float
    """When the primary was killed, or told to stop."""
    gone_s: float
    """When its postmaster was gone."""
    asked_s: float
    """When the standby was asked to take over."""
    connected_s: float
    """When a first session could write again, by libpq's list of hosts."""
    clock_offset_s: float
    """Offset to seconds since the epoch when pgbench's second run began."""
    unreplayed_bytes: int
    """WAL that the standby had flushed and not replayed when it was asked."""
    missing_probes: tuple[int, ...] = ()
    """The prober's rows, from the first to the last that it tried, that are not in the table afterwards."""
    history_before: int | None = None
    """Rows of pgbench_history before the load; None where the load writes none for each transaction."""
    history_after: int | None = None


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """The prober's writes, in their order; arrays of one length."""

    number: Floats
    sent_s: Floats
    ended_s: Floats
    is_acknowledged: Floats
    """1 where the server confirmed the commit, else 0: its fate is then not known."""


class _Probe(msgspec.Struct, array_like=True):
    number: int
    sent_s: float
    ended_s: float
    failure: str | None = None


def write_failover(folder: Path, failover: FailoverRecord) -> None:
    """Write the steps of a trial's failover.

    Raises:
        StepFailedError: The file cannot be written.
    """
    path = folder / FAILOVER_FILE
    with writing(path):
        write_durably(path, msgspec.json.format(msgspec.json.encode(failover), indent=1))


def read_failover(folder: Path) -> FailoverRecord:
    """Read the steps of a trial's failover.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged.
    """
    return msgspec.json.decode((folder / FAILOVER_FILE).read_bytes(), type=FailoverRecord)


def read_probes(folder: Path) -> Probes:
    """Read the prober's writes; a last line that was cut short is left out.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged.
    """
    _header, *lines = (folder / PROBES_FILE).read_bytes().split(b"\n")[:-1]
    seen = [msgspec.json.decode(line, type=_Probe) for line in lines]
    return Probes(
        number=np.array([one.number for one in seen], dtype=float),
        sent_s=np.array([one.sent_s for one in seen], dtype=float),
        ended_s=np.array([one.ended_s for one in seen], dtype=float),
        is_acknowledged=np.array([one.failure is None for one in seen], dtype=float),
    )
