"""`pgdyno export`: a record's figures as tables for spreadsheets and notebooks, or as metrics, and its verdicts for CI."""

from __future__ import annotations

import contextlib
import enum
import io
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import RenderableType

from pgdyno import __version__
from pgdyno.errors import HostError, SpecError, why
from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
from pgdyno.flow.report import compose_report
from pgdyno.record.durable import write_durably
from pgdyno.record.store import RecordStore
from pgdyno.report.forms.plain import Heading, render_line, render_rows
from pgdyno.units import count_things

if TYPE_CHECKING:
    from pgdyno.report.exports.families import Family


class TableFormat(enum.Enum):
    """The format of exported tables, which is also the suffix of their files."""

    CSV = "csv"
    PARQUET = "parquet"


class ExportedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written."""

    path: str
    row_count: int
    column_count: int


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were written."""

    tables: tuple[ExportedTable, ...]

    def to_json(self) -> bytes:
        """Return the list as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the list as a table."""
        headings = (Heading("file", is_whole=True), Heading("rows"), Heading("columns"))
        return render_rows(headings, [(one.path, f"{one.row_count:,}", f"{one.column_count}") for one in self.tables])


class ExportedMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics that were written to a file or sent."""

    to: str
    """The file, or the address without what may be a secret in it."""
    metric_count: int
    value_count: int

    def to_json(self) -> bytes:
        """Return the counts as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the counts in a line."""
        counts = f"{count_things(self.value_count, 'value')} of {count_things(self.metric_count, 'metric')}"
        return render_line(f"{self.to}: {counts}")


class ExportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written."""

    path: str

    def to_json(self) -> bytes:
        """Return the file as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the file's path."""
        return render_line(self.path)


def export_verdicts(store: RecordStore, *, junit: Path | None = None, bmf: Path | None = None) -> ExportedFile:
    """Write a record's verdicts into a file, as `report` does with the same options.

    Raises:
        SpecError: The record has no verdicts, or the file is there already.
        HostError: The file cannot be written.
    """
    path = junit or bmf
    gate = plan_gate((), junit=junit, bmf=bmf)
    check_gate(gate, store.read_record().study)
    _refuse_existing(path)
    apply_gate(gate, compose_report(store))
    return ExportedFile(path=str(path))


def _refuse_existing(path: Path | None) -> None:
    if path is not None and path.exists():
        raise SpecError(f"{path} is there already", hint="name another file, or move it away")


def export_openmetrics(store: RecordStore, path: Path) -> ExportedMetrics:
    """Write a record's metrics into a file, as OpenMetrics text.

    Raises:
        SpecError: The record has no trial that ended, or the file is there already.
        HostError: The file cannot be written.
    """
    from pgdyno.report.exports.openmetrics import render_openmetrics  # noqa: PLC0415 - each form loads what it needs

    _refuse_existing(path)
    families = _list_families(store)
    try:
        write_durably(path, "".join(render_openmetrics(families)).encode())
    except OSError as error:
        raise HostError(
            f"cannot write {path}", detail=error.strerror or str(error), hint="name another file"
        ) from error
    return _count(str(path), families)


def send_otlp(store: RecordStore, url: str) -> ExportedMetrics:
    """Send a record's metrics to an OpenTelemetry collector.

    Raises:
        SpecError: The record has no trial that ended, or the address is none.
        HostError: The collector cannot be reached, or refuses them.
    """
    from pgdyno.report.exports.otlp import render_otlp  # noqa: PLC0415 - each form loads what it needs
    from pgdyno.run.collector import make_collector  # noqa: PLC0415

    collector = make_collector(url)
    families = _list_families(store)
    for body in render_otlp(families, version=__version__):
        collector.send(body)
    return _count(collector.shown, families)


def _list_families(store: RecordStore) -> list[Family]:
    from pgdyno.report.exports.families import list_families  # noqa: PLC0415 - each form loads what it needs

    return list_families(compose_report(store).report)


def _count(to: str, families: list[Family]) -> ExportedMetrics:
    values = sum(len(line.points) for family in families for line in family.lines)
    return ExportedMetrics(to=to, metric_count=len(families), value_count=values)


def export_record(store: RecordStore, folder: Path, form: TableFormat) -> Export:
    """Write a record's tables into a folder, which is made if it is not there.

    Raises:
        SpecError: The record has no trial that ended, a file is there already, or the folder is a file.
        HostError: The folder cannot be written.
    """
    from pgdyno.report.exports.tables import list_tables  # noqa: PLC0415 - polars is loaded when there is something to write

    if folder.exists() and not folder.is_dir():
        raise SpecError(f"{folder} is no folder", hint="name another one")
    tables = {
        folder / f"{name}.{form.value}": table
        for name, table in list_tables(compose_report(store).report.analysis).items()
    }
    if there := [str(path) for path in tables if path.exists()]:
        raise SpecError(f"{there[0]} is there already", hint="name another folder, or move it away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Some tables of a record look like all of them, and the next call would refuse to write over them.
        with contextlib.ExitStack() as undone_unless_whole:
            for path, table in tables.items():
                content = io.BytesIO()
                if form is TableFormat.CSV:
                    table.write_csv(content)
                else:
                    table.write_parquet(content)
                undone_unless_whole.callback(path.unlink, missing_ok=True)
                write_durably(path, content.getvalue())
            undone_unless_whole.pop_all()
    except OSError as error:
        raise HostError(f"cannot write to {folder}", detail=why(error), hint="name another folder") from error
    return Export(
        tables=tuple(
            ExportedTable(path=str(path), row_count=table.height, column_count=table.width)
            for path, table in tables.items()
        )
    )
