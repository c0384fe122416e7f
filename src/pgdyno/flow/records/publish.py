"""`pgdyno publish`: a static site of records, with the conditions and an audit of each beside its figures.

The site is a folder that any web server, or none, can show: an index and each record's report. It is made beside its place and
moved there as a whole. A folder that holds anything else is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno import __version__
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.records.groups import GroupedSide, group_sides
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, SpecError, why
from pgdyno.flow.records.compare import list_report_sides, refuse_copies
from pgdyno.flow.records.find import find_record_to_read
from pgdyno.flow.report import compose_report, name_recorded_program
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.durable import drafting_folder, put_in_place, sync_folder, write_durably
from pgdyno.record.store import HTML_FILE
from pgdyno.report.forms.plain import render_line
from pgdyno.report.published import PublishedRecord, build_published
from pgdyno.report.sections.records.kept import describe_answers, parse_kept
from pgdyno.run.host.cache import keep_text
from pgdyno.run.host.program import program_name
from pgdyno.units import count_things

INDEX_FILE = "index.html"
SITE_FILE = "site.json"
# No record's folder may take their place.
_TAKEN = frozenset({INDEX_FILE, SITE_FILE})
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80


class PublishedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load of a published record, in the group of those that it may be compared with."""

    group: int
    """The same for what may be compared, from 1."""
    record: str
    """The path of the record's page."""
    workload: str
    variant: str | None
    tps: Estimate
    trials_count: int
    spread_ratio: float | None
    declared: tuple[str, ...]
    """What must be stated beside a comparison with the first of the group."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were written, relative to the folder."""

    folder: str
    pages: tuple[str, ...]
    """The index first, then each record's page, in the order in which they were named."""
    loads: tuple[PublishedLoad, ...]

    def to_json(self) -> bytes:
        """Return what was written as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return where the site is."""
        return render_line(f"{self.folder}/{INDEX_FILE}: {count_things(len(self.pages) - 1, 'record')}")


def publish(records: Sequence[Path], *, to: Path, ui: Ui) -> Site:
    """Write a site of records.

    Args:
        records: Their folders.
        to: The folder of the site; one that an earlier call wrote is replaced.
        ui: Shows remarks.

    Raises:
        SpecError: A record cannot be read, has nothing to report or is named twice, or the folder holds something else.
        HostError: The folder cannot be written.
    """
    place = to.resolve()
    _check_folder(place)
    stores = [find_record_to_read(record, record, ui=ui) for record in records]
    refuse_copies(records, stores)
    reports = [compose_report(store) for store in stores]
    names = name_folders([store.path.resolve().name for store in stores])
    published = [
        PublishedRecord(
            name=store.path.resolve().name,
            page=f"{name}/{HTML_FILE}",
            report=one.report,
            answers=describe_answers(parse_kept(one.to_json())),
        )
        for store, name, one in zip(stores, names, reports, strict=True)
    ]
    groups = group_sides([list_report_sides(store, one.report) for store, one in zip(stores, reports, strict=True)])
    site = Site(
        folder=str(to),
        pages=(INDEX_FILE, *(one.page for one in published)),
        loads=tuple(
            _make_load(number, one, published) for number, group in enumerate(groups, start=1) for one in group
        ),
    )
    try:
        _write(site, place, published, groups)
    except OSError as exc:
        raise HostError(f"cannot write {to}", detail=why(exc), hint="name another folder with --to") from exc
    return site


def name_folders(names: Sequence[str]) -> tuple[str, ...]:
    """Return a folder name for each record: its own without what means something in an address, and each only once.

    Args:
        names: The records' own names.
    """
    found: list[str] = []
    for name in names:
        plain = _NO_NAME.sub("-", name).strip("-.")[:_LONGEST_NAME] or "record"
        tries = (plain, *(f"{plain}-{number}" for number in range(2, len(names) + 2)))
        # Some file systems do not tell capitals from small letters.
        taken = _TAKEN | {one.lower() for one in found}
        found.append(next(one for one in tries if one.lower() not in taken))
    return tuple(found)


def _check_folder(to: Path) -> None:
    """Refuse a folder that holds anything but a site.

    Raises:
        SpecError: The folder holds something else.
    """
    if to.is_dir() and not any(to.iterdir()):
        return
    if to.exists() and not _is_site(to):
        raise SpecError(
            f"{to} is not a site that pgdyno wrote",
            detail=f"it has no valid {SITE_FILE}, or holds other files, which would be lost",
            hint="name an empty folder, or one that is not there yet",
        )
    if not to.absolute().parent.is_dir():
        raise SpecError(f"there is no folder {to.absolute().parent}", hint="make it first")


def _is_site(folder: Path) -> bool:
    """Return whether a folder holds what an earlier call wrote there, and nothing else."""
    try:
        site = msgspec.json.decode((folder / SITE_FILE).read_bytes(), type=Site)
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    except (OSError, *NOT_JSON):
        return False
    return files <= {*site.pages, SITE_FILE}


def _make_load(number: int, one: GroupedSide, published: Sequence[PublishedRecord]) -> PublishedLoad:
    side = one.side
    return PublishedLoad(
        group=number,
        record=published[one.place].page,
        workload=side.load_name,
        variant=None if side.variant is None else side.variant.name,
        tps=side.workload.tps,
        trials_count=len(side.trials),
        spread_ratio=one.spread_ratio,
        declared=tuple(dict.fromkeys(difference.subject for difference in one.declared)),
    )


def _write(site: Site, to: Path, published: Sequence[PublishedRecord], groups: Sequence[Sequence[GroupedSide]]) -> None:
    """Write the site beside its place, then move it there."""
    from pgdyno.report.document import name_program  # noqa: PLC0415 - loaded when there is something to write
    from pgdyno.report.forms.html import bundle_vega, name_vega, print_html, print_index  # noqa: PLC0415
    from pgdyno.report.study import build_report  # noqa: PLC0415

    vega = keep_text(name_vega(), bundle_vega)
    with drafting_folder(to) as draft:
        made = draft / "made"
        made.mkdir()
        for one in published:
            document = name_program(
                build_report(one.report), program_name(), recorded=name_recorded_program(one.report.record)
            )
            (made / one.page).parent.mkdir()
            write_durably(made / one.page, print_html(document, vega_js=vega).encode())
        index = build_published(published, groups, made_by=f"pgdyno {__version__}")
        write_durably(made / INDEX_FILE, print_index(name_program(index, program_name())).encode())
        write_durably(made / SITE_FILE, site.to_json())
        # Reading the records took its time.
        _check_folder(to)
        if to.exists():
            put_in_place(made, to, aside=draft / "old")
        else:
            made.rename(to)
        sync_folder(to.parent)
