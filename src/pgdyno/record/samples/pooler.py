"""Read what `run/sample/pooler_sampler.py` asked a pooler beside a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pgdyno.record.damage import NOT_JSON

FORMAT_VERSION = 1
POOLER = "pooler"
"""The source of what is missing of it, and the label of its process in the samples of the machine."""
POOLER_FILE = "pooler.jsonl"
POOLER_LOG = "pooler.log"
POOLER_INI = "pooler.ini"
# Source: PgBouncer's manual, SHOW STATS and SHOW POOLS. Those of older and newer versions differ in further columns.
_STATS = {
    "transactions": "total_xact_count",
    "queries": "total_query_count",
    "wait_us": "total_wait_time",
}
_POOLS = {
    "waiting_clients": "cl_waiting",
    "active_servers": "sv_active",
}


class PoolerSample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pooler's console; None where the pooler does not say."""

    t_s: float
    """CLOCK_MONOTONIC."""
    transactions: float | None = None
    """Since the pooler started; also the next two."""
    queries: float | None = None
    wait_us: float | None = None
    """Time that clients waited for a server connection."""
    waiting_clients: float | None = None
    """Clients that wait for a server connection."""
    active_servers: float | None = None
    """Server connections that serve a client."""


class PoolerSamples(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a pooler beside a load."""

    version: str
    samples: tuple[PoolerSample, ...]
    mode: str | None = None
    """`transaction`, `session` or `statement`; None where the pooler does not say, or has several."""


class _Line(msgspec.Struct):
    t: float = 0.0
    stats: list[dict[str, Any]] | None = None
    pools: list[dict[str, Any]] | None = None


class _End(msgspec.Struct):
    end: str


class _Header(msgspec.Struct):
    version: str


def read_pooler(folder: Path) -> PoolerSamples:
    """Read the samples of a trial's pooler; a last line that was cut short is left out.

    Raises:
        OSError: There is no such file.
        ValueError: It is damaged, or has no header.
    """
    whole, _, _ = (folder / POOLER_FILE).read_bytes().rpartition(b"\n")
    lines = whole.splitlines()
    if not lines:
        raise ValueError("it is empty")
    read = [msgspec.json.decode(line, type=_Line) for line in lines[1:]]
    samples = tuple(
        PoolerSample(
            t_s=line.t,
            **{name: _sum(line.stats, column) for name, column in _STATS.items()},
            **{name: _sum(line.pools, column) for name, column in _POOLS.items()},
        )
        for line in read
        if line.stats is not None and line.pools is not None
    )
    modes = {str(row["pool_mode"]) for line in read for row in line.pools or () if row.get("pool_mode")}
    return PoolerSamples(
        version=msgspec.json.decode(lines[0], type=_Header).version,
        samples=samples,
        mode=modes.pop() if len(modes) == 1 else None,
    )


def _sum(rows: list[dict[str, Any]] | None, column: str) -> float | None:
    """Return the sum of a column over a pooler's rows, which are one for each user; None if it is not there."""
    values = [row[column] for row in rows or () if isinstance(row.get(column), int | float)]
    return float(sum(values)) if values else None


def find_end(path: Path) -> str:
    """Return the reason that a sampler gave for ending; empty if it gave none."""
    last = path.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return msgspec.json.decode(last, type=_End).end
    except NOT_JSON:
        return ""
