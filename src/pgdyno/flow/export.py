"""`pgdyno export`: a record's figures as tables for spreadsheets and notebooks."""

from __future__ import annotations

import enum
import io
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.errors import HostError, SpecError
from pgdyno.flow.report import compose_report
from pgdyno.record.durable import write_durably
from pgdyno.record.store import RecordStore
from pgdyno.report.forms.plain import Heading, render_rows


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


def export_record(store: RecordStore, folder: Path, form: TableFormat) -> Export:
    """Write a record's tables into a folder, which is made if it is not there.

    Raises:
        SpecError: The record has no trial that ended, or a file is there already.
        HostError: The folder cannot be written.
    """
    from pgdyno.report.exports.tables import list_tables  # noqa: PLC0415 - polars is loaded when there is something to write

    tables = {
        folder / f"{name}.{form.value}": table
        for name, table in list_tables(compose_report(store).report.analysis.workloads).items()
    }
    if there := [str(path) for path in tables if path.exists()]:
        raise SpecError(f"{there[0]} is there already", hint="name another folder, or move it away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, table in tables.items():
            content = io.BytesIO()
            if form is TableFormat.CSV:
                table.write_csv(content)
            else:
                table.write_parquet(content)
            write_durably(path, content.getvalue())
    except OSError as error:
        raise HostError(f"cannot write to {folder}", detail=error.strerror or str(error)) from error
    return Export(
        tables=tuple(
            ExportedTable(path=str(path), row_count=table.height, column_count=table.width)
            for path, table in tables.items()
        )
    )
