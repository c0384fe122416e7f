"""`pgdyno disk --layout`: what a storage layout allows at most, as it is declared and as it is found, measuring nothing."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.disk.ceiling import InstanceLimits
from pgdyno.analyse.disk.efficiency import is_own_storage
from pgdyno.analyse.disk.layout_ceiling import ceilings_of_instance, compute_ceilings, limits_of
from pgdyno.analyse.disk.losses import list_losses
from pgdyno.analyse.disk.sold import tell_unsold
from pgdyno.analyse.disk.throttle import apply_throttles
from pgdyno.errors import ExitCode
from pgdyno.facts.instances import list_instances
from pgdyno.flow.terminal import print_document
from pgdyno.record.device.disk_card import find_declared_disk
from pgdyno.record.machine.tunables import StorageStack, Tunables
from pgdyno.report.documents.disk import layout_document
from pgdyno.report.sections.disk.commands import format_storage_script
from pgdyno.report.sections.disk.layout import LayoutView, build_layouts
from pgdyno.run.host.tunables import read_product, read_tunables
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.new_storage import plan_file_systems


class LayoutForm(enum.Enum):
    """Forms of a layout."""

    TABLE = "table"
    COMMANDS = "commands"
    """The shell script that makes it."""


class LayoutResult(msgspec.Struct, frozen=True, kw_only=True):
    """Layouts with all that can be said of them."""

    views: tuple[LayoutView, ...]
    exit_code: ExitCode = ExitCode.OK

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        return msgspec.json.encode(layout_document(self.views))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        return print_document(build_layouts(self.views))


def show_layouts(paths: Sequence[Path], host: HostSpec | None) -> LayoutResult:
    """Show the declared layout, and the one that is found.

    Args:
        paths: Existing folders here, the data's before the WAL's; none: only what is declared is reckoned.
        host: What is declared of the machine; None: nothing, and of a cloud's instance its own name tells its limits.

    Raises:
        HostError: /proc is not mounted.
    """
    if not paths and host is not None:
        limits = limits_of(host)
        disks = {"data": host.disk} | ({} if host.wal_disk is None else {"WAL": host.wal_disk})
        views = [_declare(title, disk, limits, region=host.region) for title, disk in disks.items()]
        return LayoutResult(views=tuple(_judge(view, host) for view in views))
    known = host or _find_instance()
    machines = [read_tunables(path) for path in paths]
    return LayoutResult(
        views=tuple(
            _find(path, machine, known, place, data=machines[0].disk)
            for place, (path, machine) in enumerate(zip(paths, machines, strict=True))
        )
    )


def write_storage_script(host: HostSpec) -> str:
    """Write the shell script that makes the declared storage; nothing of it is run.

    Raises:
        SpecError: The host declares no disk, or one that the script cannot make.
    """
    return format_storage_script(plan_file_systems(host), name=host.name or host.instance or "a described machine")


def _declare(
    title: str,
    disk: DiskSpec | None,
    limits: InstanceLimits | None,
    *,
    region: str | None,
    look: StorageStack | None = None,
) -> LayoutView:
    ceilings = ceilings_of_instance(limits, look) if disk is None else compute_ceilings(disk, limits, region=region)
    return LayoutView(title=title, look=look, declared=disk, limits=limits, ceilings=ceilings)


def _judge(view: LayoutView, host: HostSpec) -> LayoutView:
    disk = view.declared
    losses = tuple(list_losses(host.instance, disk, view.look))
    return msgspec.structs.replace(view, unsold=tell_unsold(host.instance, disk), losses=losses)


def _find(path: Path, machine: Tunables, host: HostSpec, place: int, *, data: StorageStack) -> LayoutView:
    disk = find_declared_disk(host, place, look=machine.disk, data=data)
    is_inside = disk is None and is_own_storage(machine.disk)
    view = _declare(str(path), disk, None if is_inside else limits_of(host), region=host.region, look=machine.disk)
    ceilings = apply_throttles(view.ceilings, machine.disk, machine.limits)
    return _judge(msgspec.structs.replace(view, ceilings=ceilings), host)


def _find_instance() -> HostSpec:
    """Return a machine of the instance type that this one reports; one of which nothing is known if that is unknown."""
    product = read_product()
    is_known = any(instance.name == product for instance in list_instances())
    return HostSpec(instance=product if is_known else None)
