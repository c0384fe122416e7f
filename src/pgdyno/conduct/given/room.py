"""Refuse data that are larger than a given server may be loaded with, or than its disk has room for, before they are loaded."""

from __future__ import annotations

from pgdyno.conduct.given.server import ReadyServer
from pgdyno.conduct.study import PlannedStudy
from pgdyno.errors import HostError
from pgdyno.plan.plan import Plan
from pgdyno.plan.room import DISK_SLACK_BYTES
from pgdyno.run.given.own_databases import list_databases
from pgdyno.run.given_server import describe_content
from pgdyno.spec.allowed import Allowed
from pgdyno.units import format_bytes


def check_room(planned: PlannedStudy, ready: ReadyServer, allowed: Allowed) -> None:
    """Refuse a study whose data and copies exceed the bound, or the room on the server's disk where that is seen.

    The size of a user's own data shows only while they are loaded; the bound holds then, too.

    Raises:
        HostError: They do.
        StepFailedError: The server refuses to tell what it holds.
    """
    size_bytes = planned.plan.dataset_bytes
    if planned.study.data.database is not None or size_bytes is None:
        return
    kept = [one for one in list_databases(ready.address)[0] if one.content and not one.is_copy]
    content = describe_content(planned.study.data, planned.plan.scale)
    is_loaded = any(one.content == content for one in kept)
    kept_bytes = sum(one.size_bytes for one in kept)
    copies = max(_count_copies(plan) for plan in (planned.plan, planned.scaling) if plan is not None)
    more_bytes = size_bytes * (copies + (not is_loaded))
    detail = f"scale {planned.plan.scale} is {format_bytes(size_bytes)}, and trials run in {_name_copies(copies)} of it"
    if kept_bytes:
        detail += f"; earlier studies have loaded {format_bytes(kept_bytes)}"
    clean = ", drop what earlier studies have loaded with `pgdyno clean --dsn CONNINFO`" if kept_bytes else ""
    if more_bytes + kept_bytes > allowed.most_data_bytes:
        raise HostError(
            f"pgdyno's databases would take {format_bytes(more_bytes + kept_bytes)} in the server,"
            f" more than the {format_bytes(allowed.most_data_bytes)} that they may",
            detail=detail,
            hint=f"use a smaller --scale{clean}, or set another bound with `--allow data=200GB`",
        )
    disk = None if ready.host is None else ready.host.data_disk
    if disk is not None and disk.is_known and more_bytes + DISK_SLACK_BYTES > disk.free_bytes:
        raise HostError(
            "the data do not fit on the server's disk",
            detail=f"{detail}; with {format_bytes(DISK_SLACK_BYTES)} for WAL it takes"
            f" {format_bytes(more_bytes + DISK_SLACK_BYTES)} more, and {format_bytes(disk.free_bytes)} are free",
            hint=f"use a smaller --scale{clean}, or free some space",
        )


def _count_copies(plan: Plan) -> int:
    """Return how many copies of the data are in the server at once: of live variants one each, and one more of the reference."""
    experiment = plan.experiment
    return 1 + len(experiment.variants) if experiment is not None and experiment.is_side_by_side else 1


def _name_copies(count: int) -> str:
    return "a copy" if count == 1 else f"{count} copies"
