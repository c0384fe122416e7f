"""`pgdyno history`: the same question over weeks, from all records of some folders: what changed, when, and what else did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.history.histories import History, Result, collect_histories
from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, SpecError, describe_failure
from pgdyno.flow.records.compare import check_out, identify_record, write_document
from pgdyno.flow.records.results import ResultReader
from pgdyno.flow.terminal import print_document
from pgdyno.record.store import RecordStore, describe_path, find_records, no_records_in
from pgdyno.report.level import Level

# About as long as a record of 80 trials takes to read and analyse.
_RECORD_S = 1.0


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The histories of some folders."""

    histories: tuple[History, ...]
    unreadable: tuple[str, ...]

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        from pgdyno.report.documents.history import history_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(history_document(self.histories, self.unreadable))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.history import build_history  # noqa: PLC0415

        return print_document(build_history(self.histories, self.unreadable), level=Level.HEADLINE)


def read_history(folders: Sequence[Path], *, out: Path | None = None, ui: Ui) -> HistoryResult:
    """Read all records directly below some folders, and sort them into histories.

    Args:
        folders: The folders.
        out: A file to write it into as well, whose name says in which form; None: none.
        ui: Shows how far it is.

    Raises:
        SpecError: There is no such folder, or no record in any of them, or a form that is not known.
        HostError: The file cannot be written.
    """
    check_out(out, example="history.html")
    for folder in folders:
        if not folder.is_dir():
            raise SpecError(f"there is no folder {folder}", hint="name folders that hold records")
    stores = [store for folder in dict.fromkeys(one.resolve() for one in folders) for store in find_records(folder)]
    if not stores:
        raise no_records_in(folders)
    ui.begin_step("read records", predicted_s=_RECORD_S * len(stores))
    reader = ResultReader()
    results: list[Result] = []
    unreadable: list[str] = []
    seen: dict[tuple[object, ...], RecordStore] = {}
    for number, store in enumerate(stores, start=1):
        ui.show_activity(f"{number} of {len(stores)}")
        try:
            made = identify_record(store)
            if made in seen:
                # A copy would count as a result of its own.
                unreadable.append(f"{describe_path(store.path)}: a copy of {describe_path(seen[made].path)}")
                continue
            results += reader.read(store)
            seen[made] = store
        except (PgdynoError, OSError) as error:
            unreadable.append(f"{describe_path(store.path)}: {describe_failure(error)}")
    ui.end_step(f"{len(stores)} of them")
    result = HistoryResult(histories=collect_histories(results), unreadable=tuple(unreadable))
    if out is not None:
        from pgdyno.report.history import build_history  # noqa: PLC0415 - each form loads what it needs

        write_document(out, build_history(result.histories, result.unreadable), result.to_json)
    return result
