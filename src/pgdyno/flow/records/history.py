"""`pgdyno history`: the same question over weeks, from all records of some folders: what changed, when, and what else did."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno import __version__
from pgdyno.analyse.history.histories import History, Result, collect_histories
from pgdyno.analyse.records.sides import list_sides
from pgdyno.analyse.study import analyse_study
from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, SpecError, describe_failure
from pgdyno.flow.records.compare import check_out, hash_scripts, identify_record, write_document
from pgdyno.flow.terminal import print_document
from pgdyno.record.store import RecordStore, describe_path, find_records, no_records_in
from pgdyno.record.trial_data import read_trial_data
from pgdyno.report.level import Level
from pgdyno.run.host.cache import fingerprint, keep_for

# About as long as a record of 80 trials takes to read and analyse.
_RECORD_S = 1.0
# What an analysis follows from beside the record.
_SOURCES = (".py", ".toml", ".csv")


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
    # A package may set the times of all its files to one, of each version alike.
    program = fingerprint(Path(__file__).parents[1], __version__, suffixes=_SOURCES)
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
            results += _read_results(store, program)
            seen[made] = store
        except (PgdynoError, OSError) as error:
            unreadable.append(f"{describe_path(store.path)}: {describe_failure(error)}")
    ui.end_step(f"{len(stores)} of them")
    result = HistoryResult(histories=collect_histories(results), unreadable=tuple(unreadable))
    if out is not None:
        from pgdyno.report.history import build_history  # noqa: PLC0415 - each form loads what it needs

        write_document(out, build_history(result.histories, result.unreadable), result.to_json)
    return result


def _read_results(store: RecordStore, program: str) -> list[Result]:
    """Return the results of a record; those of an earlier call if neither the record nor the program has changed."""
    if store.is_locked:
        return list(_list_results(store))
    name = f"history-{hashlib.sha256(os.fsencode(store.path)).hexdigest()[:24]}.json"
    made: list[Result] = []

    def make() -> str:
        made.extend(_list_results(store))
        text = msgspec.json.encode(made).decode()
        # JSON has no NaN: what does not come back as it was is computed each time.
        return text if _read_kept(text) == made else ""

    text = keep_for(name, fingerprint(store.path, program), make)
    if made:
        return made
    kept = _read_kept(text)
    return list(_list_results(store)) if kept is None else kept


def _read_kept(text: str) -> list[Result] | None:
    try:
        return msgspec.json.decode(text, type=list[Result])
    except msgspec.DecodeError:
        return None


def _list_results(store: RecordStore) -> Iterator[Result]:
    """Yield the results of a record, and of the sweep that followed it."""
    for part in (store, store.scaling):
        if not part.exists:
            continue
        record = part.read_record()
        trials = [read_trial_data(part.trial_dir(trial.planned.number), trial) for trial in part.read_trials()]
        if not trials or record.began is None:
            continue
        analysis = analyse_study(record, trials)
        for side in list_sides(record, analysis, script_hashes=hash_scripts(part, record)):
            yield Result(path=str(part.path), began=record.began, side=side)
