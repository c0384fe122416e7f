"""Predict what a trial should show before it runs, and judge the prediction by the trial's result.

The inputs are the study, the pages of the loaded data, the server's settings, the disk card, and counts of an earlier
trial of the same load and variant: CPU time and transactions. No rate of an earlier trial is an input. Only pgbench's
own scripts are predicted, in a closed loop with one variant per trial: for other scripts the accessed pages are
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from pgdyno.analyse.disk.commits import delays_flushes, waits_for_flushes
from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.models.checkpoints import find_checkpoint_distance_bytes, predict_images_of_cycles
from pgdyno.analyse.models.commits import list_pgbench_row_locks, predict_commit_tps, subtract_row_waits, unflushed_tps
from pgdyno.analyse.models.reads import PageClass, predict_early_reads, predict_reads
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.predictions import Prediction, PredictionInput
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.series import gauge
from pgdyno.record.serverlog import CheckpointComplete, CheckpointStart
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import Dataset
from pgdyno.spec.study import BUILTIN_SCRIPTS, READING_SCRIPTS
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import read_number

TPS, READS, IMAGES, DISTANCE = "tps", "blks_read_pages", "wal_fpi_count", "checkpoint_distance_bytes"
"""Names of the predicted quantities: a metric, two counters per transaction, and the WAL between checkpoints."""
_WRITING = frozenset(BUILTIN_SCRIPTS) - READING_SCRIPTS
_TABLE, _KEY = "pgbench_accounts", "pgbench_accounts_pkey"
# A row is fetched to be updated and then read; its key page is searched for both, and takes the new entry in between.
_WRITING_USES, _READING_USES = (2, 3), (1, 1)
# One in this many pages of a btree of integers is not a leaf: its 8152 bytes hold 286 entries of 16 + 4 bytes at 70 %.
# Source: PostgreSQL 18, access/nbtree/nbtsort.c, BTREE_NONLEAF_FILLFACTOR.
_PAGES_PER_PARENT = 286
# Counts per transaction below this are too small for an error in percent.
_FEW = 0.01


class PredictionBasis(msgspec.Struct, frozen=True, kw_only=True):
    """The known inputs of a prediction before a trial."""

    workload: PlannedWorkload
    """The trial's load."""
    dataset: Dataset
    settings: Mapping[str, SettingValue]
    """Settings that the server is started with."""
    version_major: int
    cpu_count: float
    limits: DiskLimits | None
    """Limits of the disk that holds the data; None without a card."""
    is_warm: bool
    """True if the data are read into the caches before the first transaction, tables first."""
    earlier: TrialData | None
    """A finished trial of the same load and variant; None before the first."""


class JudgedPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction with the measured value and the error."""

    prediction: Prediction
    measured: float | None
    error_ratio: float | None
    """Predicted over measured, minus 1; None with a reason."""
    reason: str | None


def predict_trial(before: PredictionBasis) -> tuple[Prediction, ...]:
    """Predict everything that can be predicted of a trial."""
    classes = list_account_pages(before.dataset, before.workload)
    if classes is None or before.workload.rate_tps is not None:
        return ()
    relations = _count_pages(before.dataset)
    found = [_predict_reads(before, relations, classes)]
    if before.workload.scripts[0][0] in _WRITING:
        found += [_predict_tps(before), _predict_images(before, relations), _predict_distance(before)]
    return tuple(prediction for prediction in found if prediction is not None)


def list_account_pages(dataset: Dataset, workload: PlannedWorkload) -> tuple[PageClass, ...] | None:
    """Return the pages that one of pgbench's own scripts accesses at random; None if they are unknown."""
    names, relations = {name for name, _ in workload.scripts}, _count_pages(dataset)
    heap, key = relations.get(_TABLE), relations.get(_KEY)
    if len(names) != 1 or not names <= frozenset(BUILTIN_SCRIPTS) or not heap or not key:
        return None
    uses = _WRITING_USES if names <= _WRITING else _READING_USES
    return tuple(
        PageClass(pages_count=pages, accesses_per_transaction=1.0, uses_per_access=each)
        for pages, each in ((float(heap), uses[0]), (_count_leaves(key), uses[1]))
    )


def judge_predictions(
    predictions: tuple[Prediction, ...],
    data: TrialData,
    *,
    tps: float | None,
    counts_per_transaction: Mapping[str, float | None],
) -> tuple[JudgedPrediction, ...]:
    """Compare each prediction of a trial with what the trial showed."""
    measured = {**counts_per_transaction, TPS: tps, DISTANCE: _find_distance_bytes(data)}
    return tuple(_judge(one, measured.get(one.name)) for one in predictions)


def _judge(prediction: Prediction, measured: float | None) -> JudgedPrediction:
    error, reason = None, None
    if measured is None:
        reason = (
            "the log has no checkpoint that WAL caused and that ended in the trial"
            if prediction.name == DISTANCE
            else "not measured"
        )
    elif max(measured, prediction.value) < _FEW or measured <= 0.0:
        reason = "too few for a share"
    else:
        error = prediction.value / measured - 1.0
    return JudgedPrediction(prediction=prediction, measured=measured, error_ratio=error, reason=reason)


def _count_pages(dataset: Dataset) -> dict[str, int]:
    return {relation.name: relation.pages for relation in dataset.relations}


def _predict_reads(
    before: PredictionBasis, relations: Mapping[str, int], classes: tuple[PageClass, ...]
) -> Prediction | None:
    heap, leaves = (one.pages_count for one in classes)
    buffers = _setting(before, "shared_buffers") - (sum(relations.values()) - heap - leaves)
    if buffers <= 0.0:
        return None
    settled = predict_reads(classes, buffers_count=buffers).reads_per_transaction

    def reads_between(after: float, until: float) -> float:
        return predict_early_reads(classes, buffers_count=buffers, after=after, until=until, is_warm=before.is_warm)

    inputs = (
        _pages(_TABLE, heap),
        _pages(f"leaves of {_KEY}", leaves),
        PredictionInput(name="shared_buffers less other pages", value=buffers, unit="pages", how="settings"),
    )
    count = None if before.earlier is None else before.earlier.transaction_count
    if before.earlier is None or not count:
        first = reads_between(0.0, 1.0)
        return Prediction(
            name=READS,
            value=settled,
            low=min(first, settled),
            high=max(first, settled),
            unit="pages",
            model="Che's approximation for table and leaves of the key, from the first transaction to the long run",
            inputs=inputs,
        )
    warm_up = 0.0 if before.earlier.warm_up is None else before.earlier.warm_up.transaction_count or 0.0
    return Prediction(
        name=READS,
        value=reads_between(warm_up, warm_up + count),
        low=None,
        high=None,
        unit="pages",
        model="the clock sweep over table and leaves of the key, from what the caches hold at first",
        inputs=(
            *inputs,
            _from_earlier("transactions of the warm-up", warm_up, "count", before.earlier),
            _from_earlier("transactions", count, "count", before.earlier),
        ),
    )


def _predict_tps(before: PredictionBasis) -> Prediction | None:
    limits, earlier = None if before.limits is None else before.limits.of_wal, before.earlier
    if limits is None or limits.flush_s is None or earlier is None or not waits_for_flushes(earlier.record):
        return None
    if delays_flushes(earlier.record, before.workload):
        return None
    cpu_s = _cpu_s_per_transaction(earlier)
    if cpu_s is None:
        return None
    cpus = _cpus_left(before.cpu_count, earlier)
    # The think time equals the CPU time: without its flush, one client's transaction does nothing in parallel.
    unflushed = unflushed_tps(before.workload.clients, think_s=cpu_s, cpu_s=cpu_s, cpu_count=cpus)

    branches = _count_branches(before)

    def tps_at(flush_s: float | None) -> float | None:
        if flush_s is None:
            return None
        times_s = [flush_s * share for share in limits.flush_spread or (1.0,)]
        flushed = predict_commit_tps(unflushed, flush_s=times_s)
        kept = list_pgbench_row_locks(branches, work_s=flushed.work_s) if branches else ()
        return subtract_row_waits(flushed.tps, clients=before.workload.clients, kept=kept)

    inputs = [
        PredictionInput(name="flush", value=limits.flush_s, unit="s", how=limits.flush_how),
        _from_earlier("CPU time of a transaction", cpu_s, "s", earlier),
        _from_earlier("CPUs that others left", cpus, "count", earlier),
        PredictionInput(name="clients", value=float(before.workload.clients), unit="count", how="plan"),
    ]
    if limits.flush_spread:
        slowest_s = limits.flush_s * limits.flush_spread[-1]
        how = "disk card, percentiles and mean of flushes"
        inputs.insert(1, PredictionInput(name="flush, slowest 5 %", value=slowest_s, unit="s", how=how))
    if branches:
        inputs.append(PredictionInput(name="branches", value=float(branches), unit="count", how="as loaded"))
    return Prediction(
        name=TPS,
        value=tps_at(limits.flush_s) or 0.0,
        low=tps_at(limits.flush_high_s),
        high=tps_at(limits.flush_low_s),
        unit="tps",
        model=f"group commit in a closed loop, CPUs shared evenly{', rows locked until they are durable' if branches else ''}",
        inputs=tuple(inputs),
    )


def _count_branches(before: PredictionBasis) -> int:
    """Return the branches of a script that updates one in each transaction; 0 for another script."""
    return before.dataset.scale if before.workload.scripts[0][0] == "tpcb-like" else 0


def _predict_images(before: PredictionBasis, relations: Mapping[str, int]) -> Prediction | None:
    updates = None if before.earlier is None else before.earlier.transaction_count
    if before.earlier is None or not updates or not _setting(before, "full_page_writes"):
        return None
    pages = (float(relations[_TABLE]), _count_leaves(relations[_KEY]))
    between, wal_bytes = _find_checkpoints(before.earlier, before), before.earlier.record.growth("wal_bytes")
    cycles = max(1.0, (wal_bytes or 0.0) / between.distance_bytes)
    images = sum(predict_images_of_cycles(updates_count=updates, pages_count=one, cycles=cycles) for one in pages)
    inputs = [
        _pages(_TABLE, pages[0]),
        _pages(f"leaves of {_KEY}", pages[1]),
        _from_earlier("transactions", updates, "count", before.earlier),
    ]
    if cycles > 1.0 and wal_bytes is not None:
        inputs += [_from_earlier("WAL", wal_bytes, "bytes", before.earlier), *between.inputs]
    return Prediction(
        name=IMAGES,
        value=images / updates,
        low=None,
        high=None,
        unit="count",
        model="pages of table and key touched at least once since a checkpoint: the one before the load, and those that its WAL causes",
        inputs=tuple(inputs),
    )


class _Checkpoints(NamedTuple):
    distance_bytes: int
    """WAL between two of them that WAL causes."""
    inputs: tuple[PredictionInput, ...]


def _find_checkpoints(earlier: TrialData, before: PredictionBasis) -> _Checkpoints:
    """Find how much WAL causes a checkpoint. initdb sets max_wal_size, too, which only a server that ran shows."""
    settings = {**before.settings, **earlier.record.values}
    target, max_wal_mb = (
        read_number(settings, name, major=before.version_major)
        for name in ("checkpoint_completion_target", "max_wal_size")
    )
    max_wal_bytes = int(max_wal_mb * 1024**2)
    distance_bytes = find_checkpoint_distance_bytes(
        max_wal_size_bytes=max_wal_bytes, completion_target=target, segment_bytes=earlier.record.wal_segment_bytes
    )
    inputs = (
        PredictionInput(name="max_wal_size", value=float(max_wal_bytes), unit="bytes", how="settings"),
        PredictionInput(name="checkpoint_completion_target", value=target, unit="ratio", how="settings"),
    )
    return _Checkpoints(distance_bytes, inputs)


def _predict_distance(before: PredictionBasis) -> Prediction | None:
    """Predict the WAL between checkpoints; None if an earlier trial wrote less WAL, because no such checkpoint will occur."""
    if before.earlier is None:
        return None
    between, wal_bytes = _find_checkpoints(before.earlier, before), before.earlier.record.growth("wal_bytes")
    if wal_bytes is None or wal_bytes < between.distance_bytes:
        return None
    return Prediction(
        name=DISTANCE,
        value=float(between.distance_bytes),
        low=None,
        high=None,
        unit="bytes",
        model="max_wal_size / (1 + checkpoint_completion_target), in whole segments",
        inputs=between.inputs,
    )


def _setting(before: PredictionBasis, name: str) -> float:
    return read_number(before.settings, name, major=before.version_major)


def _count_leaves(key_pages: int) -> float:
    return max(1.0, (key_pages - 1) * (1.0 - 1.0 / _PAGES_PER_PARENT))


def _pages(name: str, count: float) -> PredictionInput:
    return PredictionInput(name=name, value=count, unit="pages", how="as loaded")


def _from_earlier(name: str, value: float, unit: str, earlier: TrialData) -> PredictionInput:
    return PredictionInput(name=name, value=value, unit=unit, how=f"trial {earlier.record.planned.number}")


def _cpu_s_per_transaction(data: TrialData) -> float | None:
    """Compute the CPU seconds per transaction of server, load generator and samplers."""
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    count = data.transaction_count
    if data.os is None or data.os.header is None or start_s is None or end_s is None or not count:
        return None
    times_s = gauge(data.os.frame, "t_s")
    user, system = (gauge(data.os.frame, f"tree.study/{field}") for field in ("utime", "stime"))
    spent = user + system
    inside = (times_s >= start_s) & (times_s <= end_s) & np.isfinite(spent)
    if inside.sum() < 2:
        return None
    first, last = np.flatnonzero(inside)[[0, -1]]
    cpus = float((spent[last] - spent[first]) / data.os.header.clk_tck / (times_s[last] - times_s[first]))
    return cpus * (end_s - start_s) / count if cpus > 0.0 else None


def _cpus_left(cpu_count: float, data: TrialData) -> float:
    """Compute the CPUs left over by programs that are not part of the study; at least a tenth of them.

    A quota may leave the study fewer CPUs than were seen: others first use those beyond it.
    """
    if data.os is None:
        return cpu_count
    seen = len(series.list_cpus(data.os))
    used = (data.mean_within_load(series.cpu_of_others(data.os)) or 0.0) * seen
    return max(0.1 * cpu_count, min(cpu_count, max(cpu_count, seen) - used))


def _find_distance_bytes(data: TrialData) -> float | None:
    """Average the WAL between checkpoints that WAL triggered and that began and ended in the load.

    The first one does not count: its WAL began before the load.
    """
    seen, is_wal = [], False
    for event in data.log_within_load:
        if isinstance(event, CheckpointStart):
            is_wal = event.reasons == ("wal",)
        elif isinstance(event, CheckpointComplete) and is_wal:
            seen.append(event.distance_kb * 1024.0)
    return sum(seen) / len(seen) if seen else None
