"""`pgdyno journal`: the questions and answers of a folder of records, by machine and time.

Existing reports are read and not written again, so that the journal of a year's studies takes a moment.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.progress import read_progress
from pgdyno.errors import PgdynoError, with_program
from pgdyno.flow.report import compose_report
from pgdyno.flow.terminal import print_document
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.store import JSON_FILE, RecordStore, describe_path, find_records, no_records_in
from pgdyno.record.types import EARLIEST, TrialRecord, TrialStatus, read_time
from pgdyno.report.documents.report import REPORT_VERSION
from pgdyno.report.forms.plain import render_line
from pgdyno.report.host_words import describe_machine
from pgdyno.report.sections.head import title_study
from pgdyno.report.sections.records.journal import JournalEntry, StudyJournal, Unreadable, build_journal, find_best
from pgdyno.report.sections.records.kept import KeptReport, describe_answers, list_gains, list_retests, parse_kept
from pgdyno.run.host.program import program_name


class JournalResult(msgspec.Struct, frozen=True, kw_only=True):
    """A folder's journal, ready to be shown."""

    journal: StudyJournal

    def to_json(self) -> bytes:
        """Return the whole journal as JSON."""
        return msgspec.json.encode(self.journal)

    def to_terminal(self) -> RenderableType:
        """Return the journal as a person reads it."""
        if not self.journal.entries and not self.journal.unreadable:
            none = no_records_in([Path(self.journal.folder)])
            return render_line(with_program(f"{none.reason}; {none.hint}", program_name()))

        return print_document(build_journal(self.journal))


def read_journal(folder: Path) -> JournalResult:
    """Read what the records directly below a folder answer; list one that cannot be read with the reason."""
    entries, unreadable = [], []
    for store in find_records(folder):
        try:
            entries.append(_read_entry(store))
        except PgdynoError as error:
            unreadable.append(Unreadable(path=describe_path(store.path), problem=error.reason))
        except OSError as error:
            unreadable.append(Unreadable(path=describe_path(store.path), problem=str(error)))
    entries.sort(key=_began)
    return JournalResult(
        journal=StudyJournal(
            folder=describe_path(folder), entries=tuple(entries), best=find_best(entries), unreadable=tuple(unreadable)
        )
    )


def _began(entry: JournalEntry) -> datetime:
    """Return when a study began; the earliest time where the record does not say."""
    return read_time(entry.started_at) or EARLIEST


def _read_entry(store: RecordStore) -> JournalEntry:
    record, trials = store.read_record(), store.read_trials()
    kept = _read_kept(store, trials) if trials else None
    return JournalEntry(
        path=describe_path(store.path),
        started_at=record.started_at,
        question=title_study(record),
        server=record.server.version,
        machine=describe_machine(record),
        host_name=None if record.host is None else record.host.host_name,
        trials_finished_count=sum(trial.status is TrialStatus.FINISHED for trial in trials),
        progress=read_progress(store).describe(store.path),
        answers=describe_answers(kept) if kept is not None else ("no trial has ended",),
        gains=list_gains(kept) if kept is not None else (),
        retests=list_retests(kept) if kept is not None else (),
    )


def _read_kept(store: RecordStore, trials: tuple[TrialRecord, ...]) -> KeptReport:
    """Read the record's report; compose it again where it is of another version or of other trials."""
    try:
        kept = parse_kept((store.path / JSON_FILE).read_bytes())
    except (OSError, *NOT_JSON):
        kept = None
    ended = {(trial.planned.number, trial.status) for trial in trials}
    if kept is not None and kept.version == REPORT_VERSION and kept.trials == ended:
        return kept
    return parse_kept(compose_report(store).to_json())
