"""Plan studies of loading itself: what each trial loads, how long that takes, and what makes no sense with it.

A trial of the workload `init` is one `pgbench -i` into an empty cluster. It is one session of one client: there is nothing to
schedule and nothing to warm, and its work ends by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.restoring import COPY_BYTES_PER_S, START_STOP_S
from pgdyno.plan.room import DISK_SLACK_BYTES
from pgdyno.plan.size import BYTES_PER_SCALE, LOAD_BYTES_PER_S, NICE_SCALES, DataSize, predict_loading_s
from pgdyno.plan.types import Between, Choice, Machine, PlannedWorkload
from pgdyno.spec.study import LOADING, RestorePolicy, ServerKind, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.table import QueryMode
from pgdyno.spec.variant import DesignKind
from pgdyno.units import format_bytes

DESIGN_REASON = "each trial loads into an empty cluster of its own variant"
# One trial of the default scale: long beside pgbench's resolution of 10 ms, short enough for many rounds.
_TRIAL_S = 5.0
# initdb and two starts, for each cluster.
_EMPTY_S = 4.0
# Source: du of an empty cluster of PostgreSQL 18 with its first segments of WAL.
_EMPTY_BYTES = 60_000_000
_EXAMPLE = f"pgdyno compare --workload {LOADING} --set maintenance_work_mem=64MB --set maintenance_work_mem=1GB"
_OF_LOAD = ("scale", "mode", "clients", "threads", "cache")


def is_loading(study: Study) -> bool:
    """Return whether a study measures loading itself."""
    return any(workload.is_loading for workload in study.workload)


def check_loading(study: Study, variants: Sequence[Variant]) -> None:
    """Refuse what makes no sense where loading itself is measured.

    Raises:
        SpecError: The study asks for such a thing.
    """
    for fact, why, hint in _find_refusals(study, variants):
        raise SpecError(fact, detail=why, hint=hint)


def _find_refusals(study: Study, variants: Sequence[Variant]) -> Iterator[tuple[str, str, str]]:
    if len(study.workload) > 1:
        why = "other workloads begin with loaded data, and loading with none"
        yield f"the workload {LOADING} cannot be measured beside others", why, "ask for it in a study of its own"
    if study.server.kind is ServerKind.GIVEN or study.data.is_own:
        why = "each trial begins with an empty cluster of a known state, which only pgdyno's own servers have"
        yield f"the workload {LOADING} is not for a server of yours", why, f"leave out --dsn: {_EXAMPLE}"
    if not study.is_comparison or study.scaling is not None:
        why = "the time of loading alone says little: it is measured to compare variants, and has one client"
        yield f"the workload {LOADING} is for comparisons", why, f"for example {_EXAMPLE}"
    if study.data.restore is not RestorePolicy.COPY:
        why = "each trial begins with an empty cluster, which pgdyno copies itself"
        yield f"restore = {study.data.restore.value} makes no sense with {LOADING}", why, "leave it out"
    if study.experiment.design not in {None, DesignKind.PAIRED} or study.experiment.slice is not None:
        why = "loading goes through different steps and cannot be cut into slices that are alike"
        yield f"variants of {LOADING} can only be compared in paired trials", why, "leave out --design and slices"
    for key in _list_load_keys(study.workload[0]):
        why = "loading is one session that runs pgbench's own statements as fast as it can"
        yield f"{key} makes no sense with {LOADING}", why, "leave it out"
    for key in _OF_LOAD:
        if any(getattr(variant, key) is not None for variant in variants):
            why = (
                "an empty cluster has no data to be cached"
                if key == "cache"
                else "more data take longer: that is no verdict"
                if key == "scale"
                else "loading is one session that runs pgbench's own statements"
            )
            hint = "vary settings, initdb's choices, versions, kernel settings or disks"
            yield f"variants of {LOADING} cannot differ in {key}", why, hint


def _list_load_keys(workload: WorkloadSpec) -> Iterator[str]:
    usual = WorkloadSpec(name=LOADING)
    for key in ("mode", "clients", "threads", "rate_tps", "latency_limit", "max_tries"):
        if getattr(workload, key) != getattr(usual, key):
            yield key


def plan_loading_workload() -> PlannedWorkload:
    """Return the load of a trial that loads: pgbench's one session."""
    return PlannedWorkload(
        name=LOADING,
        scripts=(),
        mode=QueryMode.SIMPLE,
        clients=1,
        threads=1,
        rate_tps=None,
        latency_limit_ms=None,
        max_tries=1,
    )


def plan_loading_size(
    study: Study, variants: Sequence[Variant], *, machine: Machine, choices: list[Choice]
) -> DataSize:
    """Choose the scale, and predict how long empty clusters take.

    Raises:
        HostError: The data do not fit on the disk.
    """
    scale = study.data.scale
    if scale is None:
        fitting = _TRIAL_S * LOAD_BYTES_PER_S / BYTES_PER_SCALE
        scale = max(nice for nice in NICE_SCALES if nice <= fitting)
        reason = f"the largest round one that is loaded in about {_TRIAL_S:g} s: many rounds are better than long ones"
        choices.append(Choice(name="scale", value=str(scale), reason=reason))
    size_bytes = round(scale * BYTES_PER_SCALE * 100 / study.data.fillfactor)
    # The data, and as much WAL until a checkpoint removes it.
    needed = 2 * size_bytes + DISK_SLACK_BYTES
    for home, free_bytes in {"": machine.disk_free_bytes, **machine.homes_free_bytes}.items():
        if needed > free_bytes:
            raise HostError(
                f"scale {scale} does not fit on the disk{f' of {home}' * bool(home)}",
                detail=f"needs {format_bytes(needed)} (data and WAL); free are {format_bytes(free_bytes)}",
                hint="use a smaller scale, or another disk with --home",
            )
    clusters = {
        (variant.server.kind, variant.server.version, variant.server.bindir, variant.initdb) for variant in variants
    }
    return DataSize(
        scale=scale,
        dataset_bytes=size_bytes,
        largest_bytes=size_bytes,
        to_load_bytes=0,
        load_s=_EMPTY_S * len(clusters),
        between=Between(
            policy=RestorePolicy.COPY,
            restore_s=_EMPTY_BYTES / min(COPY_BYTES_PER_S, machine.write_bytes_per_s or COPY_BYTES_PER_S),
            warm_s=0.0,
            server_s=START_STOP_S,
            first_s=0.0,
        ),
    )


def plan_loading_trials(asked: TrialsSpec, size: DataSize, machine: Machine) -> TrialsSpec:
    """Return the times of trials that load: no warm-up, and the predicted seconds of loading and of its checkpoint."""
    predicted_s = math.ceil(predict_loading_s(size.largest_bytes, machine))
    return msgspec.structs.replace(asked, warm_up="0s", duration=f"{predicted_s}s")
