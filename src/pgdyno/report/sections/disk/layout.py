"""Describe a storage layout: what was found, and what the declared devices allow at most.

The limits are calculated from data sheets and are exact: figures keep the units of their sources. Measured figures are
on the disk card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, InstanceLimits, Limit, StorageCeilings
from pgdyno.analyse.disk.layout_ceiling import find_larger
from pgdyno.analyse.disk.raid import array_words, count_copies, has_parity, keeps_parity, list_arrays, times_of
from pgdyno.explain.disk.sharing import exceeds_instance
from pgdyno.facts.mount_options import judge_mount_options
from pgdyno.facts.volumes import find_volume
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.report.document import Block, Document, Prose, Section, Tone
from pgdyno.report.format import ABSENT, format_bytes, format_count, format_number
from pgdyno.report.sections.disk.devices import describe_differences, describe_look, devices_table, say_no_device
from pgdyno.report.table import Cell, Column, Table, absent, columns, text
from pgdyno.spec.host import DiskSpec
from pgdyno.units import PAGE_BYTES, with_capital

_MEGABYTE, _MEBIBYTE = 10**6, 2**20
_TITLES = {
    "random_read_iops": "random reads/s",
    "random_write_iops": "random writes/s",
    "read_bytes_per_s": "seq. reads/s",
    "write_bytes_per_s": "seq. writes/s",
    "flushes_per_s": "flushes/s",
    "capacity_bytes": "space",
}
_UNDECLARED = (
    "Its limits are not known: nothing is declared (--host FILE), and no limit was found here. To measure them, run"
    " `pgdyno disk` without --layout."
)
_MACHINE_UNKNOWN = (
    "What the machine lets through to all of its network volumes is not known, and often binds first. Declare instance, or"
    " instance_iops and instance_mb_s."
)
_NO_FIGURES = "Its limits are not known: no figure is declared, such as random_read_iops or flush_ms."


class LayoutView(msgspec.Struct, frozen=True, kw_only=True):
    """A storage path as it was found, as it is declared, or both."""

    title: str
    """A path, or its use: `data`, `WAL`."""
    look: StorageStack | None = None
    declared: DiskSpec | None = None
    limits: InstanceLimits | None = None
    """The limits of the machine."""
    ceilings: StorageCeilings
    unsold: str = ""
    """Why no such disk is sold with the instance, in a sentence; empty where it may be."""
    losses: tuple[str, ...] = ()
    """A sentence on each single failure that loses all data."""


def describe_declared(disk: DiskSpec) -> str:
    """Describe the declared layout: `8 × gp3 of 50GB, in RAID 10, chunk 64kB, xfs`."""
    one = f"{disk.volume or disk.kind}{f' of {disk.size}' if disk.size else ''}"
    array = [f"{disk.count} × {one}", array_words(disk)] if disk.count > 1 else [one]
    chunk = f"chunk {disk.chunk}" if disk.chunk else ""
    return ", ".join(filter(None, (*array, chunk, disk.filesystem, disk.mount_options)))


def ceilings_table(view: LayoutView) -> Table | None:
    """Build the table of what one volume, all volumes and the instance allow, and which limit binds; None: unknown."""
    found = {name: getattr(view.ceilings, name) for name in _TITLES}
    if not any(found.values()):
        return None
    titles = columns("", "one", "array", "instance", "lasts", "burst", numbers_from=1)
    return Table(
        caption="Maximum performance",
        columns=(*titles, Column(title="bound by")),
        rows=tuple(
            _ceiling_row(name, one, view.ceilings.absent.get(name), is_single=_is_single(view))
            for name, one in found.items()
        ),
        remark="Random: 8 kB each. Sequential: one stream, read ahead. Flushes: one at a time.",
    )


def explain_layout(view: LayoutView) -> Iterator[str]:
    """Explain a layout's table: what is a burst, and where flushes and the price come from."""
    if view.look is not None and view.declared is not None:
        yield from describe_differences(view.look, view.declared)
    ceilings = view.ceilings
    for judged in judge_mount_options((view.declared and view.declared.mount_options) or "", None):
        yield f"{', '.join(judged.seen)}: the file system {judged.claim} {judged.why}"
    yield from view.losses
    if view.declared is not None and view.declared.volume is not None:
        yield from _say_pages(view.declared)
    if any(one.is_machine_unknown for one in _transfers(ceilings).values()):
        yield _MACHINE_UNKNOWN
    if any(one.burst_value is not None for one in _transfers(ceilings).values()):
        yield "Performance above the sustained limit is a burst, paid for with credits, and ends."
    if view.declared is not None and view.declared.size is not None and view.declared.disk_kind != "network-ssd":
        yield "The size of a local disk is in powers of 1000, as in its data sheet; space is in powers of 1024."
    if ceilings.flushes_per_s is not None:
        yield f"Flushes: {ceilings.flushes_per_s.how}."
    price = ceilings.price
    if price is not None:
        yield (f"Price: ${price.usd_per_month:,.2f} a month: {price.how}; looked up on {price.date} ({price.source}).")
    elif view.declared is not None:
        yield f"No price: {ceilings.absent['price']}."


def explain_layouts(views: Sequence[LayoutView]) -> Iterator[str]:
    """Explain all layouts together: the instance's shared limits, and the total cost."""
    held = [view for view in views if any(one.instance_value for one in _transfers(view.ceilings).values())]
    limits = held[0].limits if held else None
    if limits is not None:
        yield _say_limits(limits, held)
    if len(held) > 1 and exceeds_instance([view.ceilings for view in held]):
        names = " and ".join(view.title for view in held)
        yield f"{names} share that limit: each reaches the figures in its table only while the other is idle."
    prices = [view.ceilings.price.usd_per_month for view in views if view.ceilings.price is not None]
    if len(prices) > 1:
        yield f"Volumes together: ${sum(prices):,.2f} a month, without the instance."
    if any(_is_binary(one) for view in views for one in _transfers(view.ceilings).values()):
        yield "Volumes are counted in MiB/s and instances in MB/s, as their provider does: 1 MiB is 1.05 MB."


def _say_pages(disk: DiskSpec) -> Iterator[str]:
    """Say where a volume does fewer I/Os of 8 kB than its data sheet has or was paid for, and where that is not known."""
    ability, volume = disk.volume_ability, find_volume(disk.volume or "")
    pages = None if ability.bytes_per_s is None else ability.bytes_per_s / PAGE_BYTES
    if pages is not None and pages < ability.read_iops:
        rate = _show_rate(ability.bytes_per_s or 0.0)
        yield f"Of the {format_count(ability.read_iops)} IOPS of a volume, its {rate}/s carry {format_count(pages)} of 8 kB."
    if volume.iops_bytes is not None and volume.iops_bytes < PAGE_BYTES:
        yield f"The IOPS of {volume.name} are published of {format_bytes(volume.iops_bytes)} each; of 8 kB it may do fewer."


def _transfers(ceilings: StorageCeilings) -> dict[str, Ceiling]:
    found = {name: getattr(ceilings, name) for name in TRANSFERS}
    return {name: one for name, one in found.items() if one is not None}


def _is_single(view: LayoutView) -> bool:
    """Return whether a single volume is declared, which is no array, whatever binds it."""
    return view.declared is not None and view.declared.count == 1 and view.declared.volume is not None


def _ceiling_row(name: str, ceiling: Ceiling | None, reason: str | None, *, is_single: bool) -> tuple[Cell, ...]:
    if ceiling is None:
        return (text(_TITLES[name]), *(text(None),) * 3, absent(reason), text(None), text(None))
    parts = (ceiling.volume_value, ceiling.array_value, ceiling.instance_value, ceiling.value, ceiling.burst_value)
    is_no_array = ceiling.binds is Limit.VOLUME or (is_single and ceiling.volume_value is not None)
    shown = [_show(None if is_no_array and place == 1 else one, name) for place, one in enumerate(parts)]
    if ceiling.is_machine_unknown:
        shown[2], shown[3] = "not known", f"at most {shown[3]}"
    binds = f"{ceiling.binds.value} or machine" if ceiling.is_machine_unknown else ceiling.binds.value
    return (text(_TITLES[name]), *map(text, shown), text(binds))


def _show(value: float | None, name: str) -> str:
    if value is None:
        return ABSENT
    if name == "capacity_bytes":
        return format_bytes(value)
    if name.endswith("bytes_per_s"):
        return _show_rate(value)
    return format_count(value) if value >= 100 or value == round(value) else format_number(value)


def _show_rate(bytes_per_s: float) -> str:
    """Format a rate in the unit of its source: volumes of AWS have whole MiB, instances MB."""
    if bytes_per_s % _MEBIBYTE == 0:
        return f"{bytes_per_s / _MEBIBYTE:,.0f} MiB"
    return f"{bytes_per_s / _MEGABYTE:,.5g} MB"


def _is_binary(ceiling: Ceiling) -> bool:
    return ceiling.unit == "bytes/s" and ceiling.array_value is not None and ceiling.array_value % _MEBIBYTE == 0


def _say_limits(limits: InstanceLimits, held: Sequence[LayoutView]) -> str:
    lasting = _join(limits.iops, limits.bytes_per_s)
    burst = _join(limits.burst_iops, limits.burst_bytes_per_s)
    more = f", and {burst} for a while" if burst and burst != lasting else ""
    copies = "".join(f" {words}" for words in dict.fromkeys(map(_say_copies, held)) if words)
    name = with_capital(limits.name) if limits.name.startswith("the ") else limits.name
    return f"{name} sustains {lasting} to all of its network volumes together{more}.{copies}{_say_larger(limits, held)}"


def _say_larger(limits: InstanceLimits, held: Sequence[LayoutView]) -> str:
    """Say which instance would let more through, where this one binds."""
    found = (one for view in held for one in _transfers(view.ceilings).values())
    # Without a figure of the disks, the instance is the only limit that is known.
    bound = {one.unit for one in found if one.binds is Limit.INSTANCE and one.array_value is not None}
    larger = find_larger(limits, bound)
    if larger is None:
        return ""
    return f" The next size that sustains more, {larger.name}, has {_join(larger.iops, larger.bytes_per_s)}."


def _say_copies(view: LayoutView) -> str:
    writes = TRANSFERS["random_write_iops"]
    if view.declared is not None and has_parity(view.declared):
        times = times_of(view.declared).copies_of(writes)
        return f"In RAID {view.declared.raid}, each small write counts as {times:.3g} I/Os."
    if (
        view.declared is None
        and view.look is not None
        and any(keeps_parity(one.level) for one in list_arrays(view.look))
    ):
        return f"With the parity of the array, each small write counts as {count_copies(view.look, writes):.3g} I/Os."
    return "Each write to a mirror counts separately." if _is_mirrored(view) else ""


def _is_mirrored(view: LayoutView) -> bool:
    if view.declared is not None:
        return view.declared.raid in {1, 10}
    return view.look is not None and any(one.level in {"raid1", "raid10"} for one in view.look.stripes.values())


def _join(iops: float | None, bytes_per_s: float | None) -> str:
    words = (
        None if iops is None else f"{format_count(iops)} IOPS",
        None if bytes_per_s is None else f"{bytes_per_s / _MEGABYTE:,.5g} MB/s",
    )
    return " and ".join(filter(None, words))


def build_layouts(views: Sequence[LayoutView]) -> Document:
    """Return the document of some layouts, with what holds for all of them at the end."""
    sections = tuple(Section(title=view.title, blocks=tuple(_list_blocks(view))) for view in views)
    words = tuple(Prose(words=one) for one in explain_layouts(views))
    return Document(title="Storage layouts", blocks=(*sections, *words), is_titled=False)


def _list_blocks(view: LayoutView) -> Iterator[Block]:
    look = view.look
    if look is not None:
        yield Prose(words=describe_look(look))
    if view.declared is not None:
        yield Prose(words=f"declared: {describe_declared(view.declared)}")
    if view.unsold:
        yield Prose(words=view.unsold, tone=Tone.ALARM)
    devices = None if look is None else devices_table(look)
    if devices is not None:
        yield msgspec.structs.replace(devices, is_captioned=False)
    elif look is not None:
        yield Prose(words=say_no_device(look.facts))
    if look is not None:
        yield from (Prose(words=f"not observed: {one.what}: {one.reason}") for one in look.unseen)
    ceilings = ceilings_table(view)
    if ceilings is None:
        yield Prose(words=_UNDECLARED if view.declared is None else _NO_FIGURES)
    else:
        yield ceilings
    yield from (Prose(words=words) for words in explain_layout(view))
