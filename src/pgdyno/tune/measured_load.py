"""Read the load that a record measured, and scale it to another machine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from pgdyno.record.types import StudyRecord, TrialRecord
from pgdyno.tune.checkpoints import COMPRESSIONS
from pgdyno.tune.connections import ACTIVE, limit_active
from pgdyno.tune.pooling import has_as_many_cpus
from pgdyno.tune.types import Known, MeasuredKnee
from pgdyno.units import count_things, format_bytes, format_cpus

DATASET = "dataset"
"""Name of the input."""


class MeasuredLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the load that a record has measured; None where not measured."""

    wal_bytes_per_s: Known | None = None
    wal_compression: str = "off"
    active: Known | None = None
    dataset: Known | None = None
    to_come_bytes: float | None = None
    """What the load brings to the disk of pg_wal beside the WAL: data in all copies, and other servers' WAL; None if that is not known."""
    cpu_count: float | None = None
    """CPUs of the machine that it was measured on; None if that was not seen."""
    knee: MeasuredKnee | str = ""
    """The knee of its sweep over clients, or why there is none; empty where none was looked for."""


def read_measured(record: StudyRecord, trials: Sequence[TrialRecord], *, name: str) -> MeasuredLoad:
    """Read the measured load from a record: the median of the trials of the workload, and clients, that wrote most WAL.

    Args:
        record: The study.
        trials: Its finished trials.
        name: Name of the record.
    """
    rates: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for trial in trials:
        rate = _wal_rate(trial)
        if rate is not None:
            clients = record.plan.find_load(trial.planned).clients
            compression = trial.values.get("wal_compression", "off")
            rates.setdefault((trial.planned.workload, clients), []).append((rate, compression))
    dataset = None
    if record.dataset is not None:
        dataset = Known.measured(DATASET, record.dataset.total_bytes, "bytes", f"loaded by {name}")
    if not rates:
        return MeasuredLoad(dataset=dataset)
    (workload, clients), seen = max(rates.items(), key=lambda each: median(rate for rate, _ in each[1]))
    host = record.host
    place = "a machine that was not seen"
    if host is not None:
        place = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)}"
    how = f"{workload} in {name} ({place}), {count_things(len(seen), 'trial')}"
    return MeasuredLoad(
        wal_bytes_per_s=Known.measured("WAL rate", median(rate for rate, _ in seen), "bytes/s", how),
        # `on` is pglz.
        wal_compression=max(({"on": "pglz"}.get(one, one) for _, one in seen), key=_rank_compression),
        active=Known.measured(ACTIVE, clients, "count", f"clients of {how}"),
        dataset=dataset,
        cpu_count=None if host is None else host.usable_cpu_count,
    )


def scale_load(measured: MeasuredLoad, *, cpus: Known, memory: Known) -> MeasuredLoad:
    """Return the load as it is assumed of a machine with another number of CPUs: for each CPU it writes as much WAL.

    More CPUs have more clients at work; fewer serve the same ones.

    Args:
        measured: The load as it was measured.
        cpus: Of the machine that settings are derived for.
        memory: Of that machine.
    """
    if measured.cpu_count is None or has_as_many_cpus(cpus.value, measured.cpu_count):
        return measured
    ratio = cpus.value / measured.cpu_count
    how = f"by CPUs, {ratio:.3g} times that of"

    def scale(known: Known, value: float) -> Known:
        return Known.assumed(known.name, value, known.unit, f"{how} {known.how.removeprefix('clients of ')}")

    rate, active = measured.wal_bytes_per_s, measured.active
    if rate is not None:
        rate = scale(rate, rate.value * ratio)
    if active is not None and ratio > 1:
        active = scale(active, limit_active(round(active.value * ratio), memory, at_least=active.value))
    return msgspec.structs.replace(measured, wal_bytes_per_s=rate, active=active)


def _rank_compression(name: str) -> float:
    """Rank a wal_compression by how much it saves; several variants of a record may differ in it."""
    return 1.0 - COMPRESSIONS[name][1]


def _wal_rate(trial: TrialRecord) -> float | None:
    """Return the WAL rate of a trial; None in slices, which were frozen for most of the load: each variant has a trial alone."""
    grown, load_s = trial.growth("wal_bytes"), trial.load_s
    return None if grown is None or load_s is None or trial.is_in_slices else grown / load_s
