"""Read what settings are derived from besides the machine: a record's load, its knee, and the version of PgBouncer."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.store import open_record
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.spec.topology import TopologySpec
from pgdyno.tune.measured_load import MeasuredLoad, read_measured


def read_load(path: Path | None, topology: TopologySpec) -> MeasuredLoad | None:
    """Read the load that a record measured; None without one.

    Args:
        path: The record.
        topology: What stands around the server. For a pooler the knee of the record's sweep over pool sizes or clients is read, too.
    """
    if path is None:
        return None
    store = open_record(path)
    record = store.read_record()
    measured = read_measured(record, store.read_trials(), name=store.path.name)
    if topology.pool_mode is None:
        return measured
    from pgdyno.flow.report import compose_report  # noqa: PLC0415 - an analysis takes long, and only a pool needs it
    from pgdyno.tune.knee import read_knee, read_pool_knee  # noqa: PLC0415

    analysis = compose_report(store).report.analysis
    pool_knee = read_pool_knee(record, analysis, name=store.path.name)
    sweeps, followed = analysis.sweeps, analysis.scaling
    if not sweeps and followed is not None:
        record, sweeps = followed.record, followed.analysis.sweeps
    knee = read_knee(record, sweeps, name=store.path.name)
    if pool_knee is not None and (isinstance(knee, str) or not isinstance(pool_knee, str)):
        knee = pool_knee
    return msgspec.structs.replace(measured, knee=knee)


def find_pooler_version() -> tuple[int, int] | None:
    """Find the version of the PgBouncer on this machine; None if there is none."""
    try:
        return find_pgbouncer().version
    except HostError:
        return None
