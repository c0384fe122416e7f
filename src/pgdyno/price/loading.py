"""Compute the cost of loading data: the machine's price for as long as it takes, for each load and for each GB loaded.

A machine that loads is paid for by the hour, and the rest of the month may do other work: no utilisation is assumed. The checkpoint after a load
is not in it, as it is not in pgbench's own total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate, estimate_over_trials, scale_estimate
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.facts.prices import Term
from pgdyno.price.cost import MONTH_H, HostCost
from pgdyno.record.types import StudyRecord

_MONTH_S = MONTH_H * 3600.0
_GB = 2.0**30


class LoadingWorth(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a load under one payment term."""

    term: Term
    per_load: Estimate
    per_gb: Estimate | None
    """Cost of a GB (2^30 bytes) of tables and indexes; None if their size is not known."""


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of loading under one variant."""

    name: str
    durability_given_up: tuple[str, ...]
    load_s: Estimate
    """Time of a load."""
    loaded_bytes: float | None
    """Size of the tables with their indexes, as loaded; as planned in records that have no sizes."""
    worths: tuple[LoadingWorth, ...]


def price_loadings(
    record: StudyRecord, analysis: StudyAnalysis, cost: HostCost, losses: Mapping[str, Sequence[str]]
) -> tuple[Loading, ...]:
    """Compute what each variant's load costs; nothing of a record that did not measure loading."""
    return tuple(
        _price_loading(record, workload, cost, tuple(losses.get(workload.name, ())))
        for workload in analysis.workloads
        if workload.load.is_loading
    )


def _price_loading(
    record: StudyRecord, workload: WorkloadAnalysis, cost: HostCost, given_up: tuple[str, ...]
) -> Loading:
    timed = [trial for trial in workload.trials if not trial.record.planned.is_observed]
    rounds = [trial.record.planned.round for trial in timed]
    times_s = [trial.init_s.get("init_s") for trial in timed]
    load_s = estimate_over_trials(times_s, unit="s", missing="not loaded", rounds=rounds)
    sizes = [sum(table.bytes for table in trial.record.tables_after) for trial in workload.trials]
    known = [size for size in sizes if size]
    loaded_bytes = sum(known) / len(known) if known else record.plan.dataset_bytes
    return Loading(
        name=workload.name,
        durability_given_up=given_up,
        load_s=load_s,
        loaded_bytes=loaded_bytes,
        worths=()
        if load_s.value is None
        else tuple(
            LoadingWorth(
                term=one.term,
                per_load=(per_load := scale_estimate(load_s, one.per_month / _MONTH_S, unit=cost.currency)),
                per_gb=scale_estimate(per_load, _GB / loaded_bytes, unit=cost.currency) if loaded_bytes else None,
            )
            for one in cost.costs
        ),
    )
