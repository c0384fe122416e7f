"""Choose pgbench's scale, predict loading and restoring, and check that the data fit on the disk."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Variant, identify_server, reference_server
from pgdyno.plan.live import predict_turns_s
from pgdyno.plan.places import place_of
from pgdyno.plan.restoring import COPY_BYTES_PER_S, MEMORY_SHARE, START_STOP_S, predict_between
from pgdyno.plan.room import (
    check_disk,
    check_homes,
    check_wal_disk,
    find_most_data,
    has_wal_at_home,
    predict_kept_wal,
    predict_loaded_bytes,
    predict_wal_bytes,
    slack_bytes_of,
)
from pgdyno.plan.types import Between, Choice, Machine, Plan, PlannedTrial, PlannedWorkload
from pgdyno.spec.initdb import combine_choices
from pgdyno.spec.study import RestorePolicy, ServerKind, Study
from pgdyno.units import format_bytes

# Source: sizes of pgbench tables at fillfactor 100, PostgreSQL 15 to 18: 13.4 MB of accounts and 2.2 MB of its key
# for each unit of scale.
BYTES_PER_SCALE = 15_700_000
LOAD_BYTES_PER_S = 80_000_000
"""What the one session of `pgbench -i` loads. Source: 31.4 GB in 366 s (n = 1, quiet, 2 CPUs, a disk of 1.5 GB/s)."""
# The rest are keys. Source: as BYTES_PER_SCALE.
_TABLES_SHARE = 13.4 / 15.7
# Restoring precedes every trial. On a slow disk the data are smaller, so that restoring does not dominate.
_RESTORE_BUDGET_S = 2.5
_LOAD_START_S = 3.0
NICE_SCALES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


class DataSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size and times of the loaded clusters with which trials begin, one for each PostgreSQL and scale."""

    scale: int
    """Scale of the study, for variants without their own."""
    dataset_bytes: int | None
    """Size of the data at that scale; None where only loading shows it."""
    largest_bytes: int
    """Size of the largest cluster."""
    to_load_bytes: int
    """Disk space for the clusters that are still to be loaded, with their WAL."""
    load_s: float
    between: Between | None
    """Time between two trials with the largest cluster; None where its size is not known."""

    @property
    def restore_s(self) -> float:
        """Seconds that each trial takes before its warm-up."""
        return START_STOP_S if self.between is None else self.between.total_s

    def trial_s(self, trial: PlannedTrial, *, sharers: int = 1) -> float:
        """Return the seconds of a trial's step, of a server that so many trials share."""
        first_s = self.first_s if trial.number == 1 else 0.0
        load_s = trial.duration_s if sharers == 1 else predict_turns_s(trial.duration_s)
        return first_s + self.restore_s / sharers + trial.warm_up_s + load_s

    @property
    def first_s(self) -> float:
        """Seconds that the first trial takes in addition."""
        return 0.0 if self.between is None else self.between.first_s


def plan_size(
    study: Study,
    variants: Sequence[Variant],
    workloads: Sequence[PlannedWorkload],
    *,
    machine: Machine,
    load_budget_s: float,
    choices: list[Choice],
) -> DataSize:
    """Choose the scale, and predict how long loading and restoring take.

    Args:
        study: The study as requested.
        variants: The study's variants; empty without a comparison.
        workloads: The study's loads, completely planned.
        machine: Resources that the study may use.
        load_budget_s: Time that loading may take if the scale is chosen here.
        choices: List to which choices are appended.

    Raises:
        SpecError: Data of the user's own are asked for in a server of pgdyno's own; or data that are not restored, by
            variants that need different ones.
        HostError: The data do not fit on the disk.
    """
    if study.data.is_own:
        return _plan_own_data(study)
    scale = _find_scale(study, variants) or _choose_scale(
        _count_clients(variants, workloads), machine, load_budget_s, choices, standbys=study.server.standbys
    )
    bytes_per_scale = predict_bytes_per_scale(study)
    first = variants[0].initdb if variants else combine_choices(study.data)
    own = identify_server(reference_server(study)), first
    wanted = {((identify_server(variant.server), variant.initdb), variant.scale or scale) for variant in variants} or {
        (own, scale)
    }
    # Data that are already loaded are known only for the reference's PostgreSQL and its choices of initdb.
    to_load = [each for server, each in wanted if server != own or each not in machine.loaded_scales]
    _check_one_cluster(study, variants, len(wanted))
    standbys, copies = study.server.standbys, count_copies(study)
    has_wal = has_wal_at_home(variants, machine)
    check_disk([each for _, each in wanted], to_load, bytes_per_scale, machine, copies=copies, has_wal=has_wal)
    largest = max(each for _, each in wanted)
    check_wal_disk(round(largest * bytes_per_scale), machine, standbys=standbys)
    check_homes(round(largest * bytes_per_scale), machine, standbys=standbys)
    return DataSize(
        scale=scale,
        dataset_bytes=round(scale * bytes_per_scale),
        largest_bytes=round(largest * bytes_per_scale),
        to_load_bytes=sum(predict_loaded_bytes(round(each * bytes_per_scale)) for each in to_load),
        load_s=sum(_LOAD_START_S + predict_loading_s(each * bytes_per_scale, machine) for each in to_load),
        between=predict_between(study, variants, workloads, machine, size_bytes=largest * bytes_per_scale),
    )


def predict_bytes_per_scale(study: Study) -> float:
    """Return the bytes of data for each unit of scale."""
    return BYTES_PER_SCALE * 100 / study.data.fillfactor


def predict_loading_s(size_bytes: float, machine: Machine) -> float:
    """Predict the seconds in which `pgbench -i` loads data: its one session's or the disk's, whichever takes longer."""
    if machine.write_bytes_per_s is None:
        return size_bytes / LOAD_BYTES_PER_S
    # WAL takes as many bytes as the data, and lies with them here (ADR 22). Memory may hold the tables until their keys are made.
    is_held = size_bytes <= MEMORY_SHARE * machine.memory_bytes
    read_s = 0.0 if is_held else _TABLES_SHARE * size_bytes / (machine.read_bytes_per_s or machine.write_bytes_per_s)
    return max(size_bytes / LOAD_BYTES_PER_S, 2 * size_bytes / machine.write_bytes_per_s + read_s)


def predict_beside_wal(study: Study, plan: Plan, machine: Machine, *, copies: int, is_wal_apart: bool) -> int:
    """Predict the bytes that a study of pgdyno's own servers brings to the disk of a server's WAL, beside that WAL.

    They are the cluster that is still to be loaded, the working copies, and the WAL in all of them but the server's own.

    Args:
        study: The study, without variants.
        plan: Its plan.
        machine: The data that are loaded.
        copies: Working copies of the data that lie on the disk at once, without those of standbys.
        is_wal_apart: Whether pg_wal lies on another disk than the data, and not only in another folder.
    """
    data_bytes, standbys = plan.dataset_bytes or 0, study.server.standbys
    clusters = copies + standbys
    wal_bytes = (clusters - 1) * predict_wal_bytes(data_bytes) + predict_kept_wal(standbys)
    if is_wal_apart:
        return wal_bytes
    to_load_bytes = 0 if plan.scale in machine.loaded_scales else predict_loaded_bytes(data_bytes)
    copied_bytes = 0 if study.data.restore is RestorePolicy.COMMAND else clusters * data_bytes
    return to_load_bytes + copied_bytes + wal_bytes


def count_copies(study: Study) -> int:
    """Count the working copies of the data that paired trials leave on the disk: the server's, and each standby's."""
    return 0 if study.data.restore is RestorePolicy.COMMAND else 1 + study.server.standbys


def _check_one_cluster(study: Study, variants: Sequence[Variant], clusters: int) -> None:
    policy = study.data.restore
    if clusters > 1 and policy is RestorePolicy.NONE:
        raise SpecError(
            "these variants need their data restored",
            detail=f"they have {clusters} PostgreSQLs or scales, and each trial takes the place of the other's data",
            hint='leave out --restore none (in a study file: restore = "none")',
        )
    if policy is not RestorePolicy.COPY and len({place_of(study.data, variant) for variant in variants}) > 1:
        raise SpecError(
            "variants on several disks need copies of their data",
            detail=f'restore is "{policy.value}", which keeps one cluster in one place',
            hint='leave out --restore and --restore-command (in a study file: restore = "copy")',
        )


def _plan_own_data(study: Study) -> DataSize:
    """Return what is known of the user's own data before the server is asked: nothing but what they take at least."""
    if study.server.kind is not ServerKind.GIVEN:
        raise SpecError(
            "data of your own are measured in a given server only",
            hint="name a server with --dsn, or leave out init and database; pgdyno's own servers have pgbench's tables",
        )
    load_s = 0.0 if study.data.init is None else _LOAD_START_S
    return DataSize(scale=1, dataset_bytes=None, largest_bytes=0, to_load_bytes=0, load_s=load_s, between=None)


def count_live_copies(variants_count: int) -> int:
    """Count the working copies of the data that live pairs of servers leave on the disk.

    Each server of a round has one, also the second one of the reference, and the observed trials have one.
    """
    return variants_count + 2


def find_missing_room(variants: Sequence[Variant], size: DataSize, machine: Machine) -> str | None:
    """Return why the servers of all variants cannot be up at once on a machine; None if they can.

    Each server has its own copy of the data on disk, and in memory twice: in its buffers and in the kernel's cache. On disk there is one
    more, that of the observed trials. With several homes, the order of each round decides which copies a home gets, and it keeps them.
    """
    # The reference runs twice.
    servers, copies = len(variants) + 1, count_live_copies(len(variants))
    needed_bytes = 2 * servers * size.largest_bytes
    allowed_bytes = round(MEMORY_SHARE * machine.memory_bytes)
    if needed_bytes > allowed_bytes:
        return (
            f"{servers} servers with their data need about {format_bytes(needed_bytes)} of memory at once;"
            f" {format_bytes(allowed_bytes)} may be used"
        )
    data_bytes, wal_bytes = copies * size.largest_bytes, copies * predict_wal_bytes(size.largest_bytes)
    disk_bytes = size.to_load_bytes + data_bytes + (wal_bytes if has_wal_at_home(variants, machine) else 0)
    if disk_bytes > machine.disk_free_bytes:
        return (
            f"{servers} servers with their data, and a copy for observed trials, need {format_bytes(disk_bytes)} of disk at once;"
            f" free are {format_bytes(machine.disk_free_bytes)}"
        )
    for home, free_bytes in machine.homes_free_bytes.items():
        home_bytes = data_bytes + wal_bytes
        if home_bytes > free_bytes:
            return (
                f"the servers of {home} need {format_bytes(home_bytes)} of disk at once;"
                f" free are {format_bytes(free_bytes)}"
            )
    if machine.wal_free_bytes is not None and wal_bytes > machine.wal_free_bytes:
        return (
            f"{servers} servers, and a copy for observed trials, need {format_bytes(wal_bytes)} for their WAL at once;"
            f" free on its disk are {format_bytes(machine.wal_free_bytes)}"
        )
    return None


def _find_scale(study: Study, variants: Sequence[Variant]) -> int | None:
    """Return the requested scale, or the reference's if every variant has its own; None if it must be chosen."""
    if study.data.scale is not None or not variants or any(variant.scale is None for variant in variants):
        return study.data.scale
    return variants[0].scale


def _count_clients(variants: Sequence[Variant], workloads: Sequence[PlannedWorkload]) -> int:
    of_variants = [variant.clients for variant in variants] or [None]
    return max(clients or workload.clients for clients in of_variants for workload in workloads)


def _choose_scale(
    most_clients: int, machine: Machine, load_budget_s: float, choices: list[Choice], *, standbys: int
) -> int:
    # If the scale is below the number of clients, tpcb-like clients wait for each other's branch rows.
    # Source: PostgreSQL 18 manual, pgbench, "Good Practices".
    least = 2 * most_clients
    limits = {
        f"loading takes about {load_budget_s:.0f} s": round(load_budget_s * LOAD_BYTES_PER_S / BYTES_PER_SCALE),
        f"a copy of the data is written in {_RESTORE_BUDGET_S:g} s": round(
            _RESTORE_BUDGET_S * _copy_bytes_per_s(machine) / BYTES_PER_SCALE / (1 + standbys)
        ),
        "the data fit into an eighth of memory": machine.memory_bytes // 8 // (1 + standbys) // BYTES_PER_SCALE,
        "the disk has room for them": int(
            find_most_data(machine.disk_free_bytes - slack_bytes_of(standbys), 2 + standbys) // BYTES_PER_SCALE
        ),
    }
    binding = min(limits, key=lambda reason: limits[reason])
    scale = max((nice for nice in NICE_SCALES if nice <= limits[binding]), default=1)
    reason = f"the largest round one at which {binding}"
    if scale < least:
        scale, reason = least, "twice the clients: with fewer branches they would wait for each other's rows"
    choices.append(Choice(name="scale", value=str(scale), reason=reason))
    return scale


def _copy_bytes_per_s(machine: Machine) -> float:
    return min(COPY_BYTES_PER_S, machine.write_bytes_per_s or COPY_BYTES_PER_S)
