"""How much data: pgbench's scale, the loaded clusters that trials begin with, and whether the disk holds them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.errors import HostError
from pgdyno.plan.experiment import Variant, identify_server, reference_server
from pgdyno.plan.types import Choice, Machine, PlannedWorkload
from pgdyno.spec.study import Study
from pgdyno.units import format_bytes

# Source: sizes of pgbench tables at fillfactor 100, PostgreSQL 15 to 18: 13.4 MB of accounts and 2.2 MB of its key
# for each unit of scale.
BYTES_PER_SCALE = 15_700_000
# WAL that a trial may keep (max_wal_size is a soft limit of 1 GB), and room for logs and records.
_DISK_SLACK_BYTES = 3_000_000_000
# Conservative rates for the prediction of waiting time: what small cloud volumes do.
_LOAD_BYTES_PER_S = 80_000_000
_COPY_BYTES_PER_S = 800_000_000
# Trials are many, and what restoring takes is no load: on a slow disk the data are less, lest it take most of the time.
_RESTORE_BUDGET_S = 2.5
_LOAD_START_S = 3.0
# What lies between two trials beside the copy: a server that stops and one that starts, and reading what the trial left.
_START_STOP_S = 2.0
_NICE_SCALES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


class DataSize(msgspec.Struct, frozen=True, kw_only=True):
    """The loaded clusters that trials begin with, one for each PostgreSQL and scale."""

    scale: int
    """The study's own, for variants that have none."""
    dataset_bytes: int
    """At that scale."""
    load_s: float
    restore_s: float
    """Of the largest, start and stop of its server included."""


def plan_size(
    study: Study,
    variants: Sequence[Variant],
    workloads: Sequence[PlannedWorkload],
    *,
    machine: Machine,
    load_budget_s: float,
    choices: list[Choice],
) -> DataSize:
    """The scale, and what loading and restoring it takes.

    Args:
        study: What was asked for.
        variants: Its variants; none in a study that compares nothing.
        workloads: Its loads, with nothing left open.
        machine: What may be used.
        load_budget_s: How long loading may take when the scale is chosen here.
        choices: What is chosen here is added to them.

    Raises:
        HostError: The data do not fit on the disk.
    """
    scale = _find_scale(study, variants) or _choose_scale(
        _count_clients(variants, workloads), machine, load_budget_s, choices
    )
    bytes_per_scale = BYTES_PER_SCALE * 100 / study.data.fillfactor
    own = identify_server(reference_server(study))
    wanted = {(identify_server(variant.server), variant.scale or scale) for variant in variants} or {(own, scale)}
    # What lies loaded for another PostgreSQL than the reference's is not known here.
    to_load = [each for server, each in wanted if server != own or each not in machine.loaded_scales]
    _check_disk([each for _, each in wanted], to_load, bytes_per_scale, machine)
    largest = max(each for _, each in wanted)
    return DataSize(
        scale=scale,
        dataset_bytes=round(scale * bytes_per_scale),
        load_s=sum(_LOAD_START_S + each * bytes_per_scale / _LOAD_BYTES_PER_S for each in to_load),
        restore_s=largest * bytes_per_scale / _copy_bytes_per_s(machine) + _START_STOP_S,
    )


def _find_scale(study: Study, variants: Sequence[Variant]) -> int | None:
    """The scale that was asked for; the reference's where every variant has its own; None where one is to be chosen."""
    if study.data.scale is not None or not variants or any(variant.scale is None for variant in variants):
        return study.data.scale
    return variants[0].scale


def _count_clients(variants: Sequence[Variant], workloads: Sequence[PlannedWorkload]) -> int:
    of_variants = [variant.clients for variant in variants] or [None]
    return max(clients or workload.clients for clients in of_variants for workload in workloads)


def _choose_scale(most_clients: int, machine: Machine, load_budget_s: float, choices: list[Choice]) -> int:
    # Below scale = clients, every tpcb-like client waits for the row of another one's branch.
    # Source: PostgreSQL 18 manual, pgbench, "Good Practices".
    least = 2 * most_clients
    limits = {
        f"loading takes about {load_budget_s:.0f} s": round(load_budget_s * _LOAD_BYTES_PER_S / BYTES_PER_SCALE),
        f"a copy of the data is written in {_RESTORE_BUDGET_S:g} s": round(
            _RESTORE_BUDGET_S * _copy_bytes_per_s(machine) / BYTES_PER_SCALE
        ),
        "the data fit into an eighth of memory": machine.memory_bytes // 8 // BYTES_PER_SCALE,
        "the disk has room for them": (machine.disk_free_bytes - _DISK_SLACK_BYTES) // (2 * BYTES_PER_SCALE),
    }
    binding = min(limits, key=lambda reason: limits[reason])
    scale = max((nice for nice in _NICE_SCALES if nice <= limits[binding]), default=1)
    reason = f"the largest round one at which {binding}"
    if scale < least:
        scale, reason = least, "twice the clients: with fewer branches they would wait for each other's rows"
    choices.append(Choice(name="scale", value=str(scale), reason=reason))
    return scale


def _copy_bytes_per_s(machine: Machine) -> float:
    return min(_COPY_BYTES_PER_S, machine.write_bytes_per_s or _COPY_BYTES_PER_S)


def _check_disk(scales: Sequence[int], to_load: Sequence[int], bytes_per_scale: float, machine: Machine) -> None:
    # All loaded clusters lie side by side, and one working copy beside them.
    needed = round((sum(to_load) + max(scales)) * bytes_per_scale) + _DISK_SLACK_BYTES
    if needed <= machine.disk_free_bytes:
        return
    hint = "use smaller scales or fewer servers, or free some space"
    if len(scales) == 1:
        copies = 1 + len(to_load)
        fits = max(0, int((machine.disk_free_bytes - _DISK_SLACK_BYTES) / (copies * bytes_per_scale)))
        hint = f"use a scale of at most {fits}" if fits else "free some space"
    raise HostError(
        f"scale {', '.join(map(str, sorted(set(scales))))} does not fit on the disk",
        detail=(
            f"needs {format_bytes(needed)} (loaded clusters, a working copy, WAL);"
            f" free are {format_bytes(machine.disk_free_bytes)}"
        ),
        hint=f"{hint}, or put the work elsewhere with --home",
    )
