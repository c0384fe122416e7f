"""`pgdyno journal`: what was asked and answered in a folder of records, by machine and time.

Reports that are there already are read, not written again: a folder of a year's studies is listed in a moment.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.text import Text

from pgdyno.conduct.progress import read_progress
from pgdyno.errors import PgdynoError, with_program
from pgdyno.flow.report import compose_report
from pgdyno.record.store import JSON_FILE, RecordStore, find_records
from pgdyno.record.types import TrialRecord, TrialStatus
from pgdyno.report.content import title_study
from pgdyno.report.host_words import describe_machine
from pgdyno.report.jsonreport import REPORT_VERSION
from pgdyno.report.kept_report import KeptReport, describe_answers, list_gains, list_retests, parse_kept
from pgdyno.report.study_journal import JournalEntry, StudyJournal, Unreadable, find_best, render_journal
from pgdyno.run.host.program import program_name


class JournalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of a folder."""

    journal: StudyJournal

    def to_json(self) -> bytes:
        """As a document with all of it."""
        return msgspec.json.encode(self.journal)

    def to_terminal(self) -> RenderableType:
        """As a person reads it."""
        if not self.journal.entries and not self.journal.unreadable:
            hint = f"no records in {self.journal.folder}; `pgdyno bench --quick` makes one"
            return Text(with_program(hint, program_name()))
        return render_journal(self.journal)


def read_journal(folder: Path) -> JournalResult:
    """Everything that the records directly below a folder answer; one that cannot be read is listed with the reason."""
    entries, unreadable = [], []
    for store in find_records(folder):
        try:
            entries.append(_read_entry(store))
        except PgdynoError as error:
            unreadable.append(Unreadable(path=str(store.path), problem=error.reason))
        except OSError as error:
            unreadable.append(Unreadable(path=str(store.path), problem=str(error)))
    entries.sort(key=_began)
    return JournalResult(
        journal=StudyJournal(
            folder=str(folder), entries=tuple(entries), best=find_best(entries), unreadable=tuple(unreadable)
        )
    )


def _began(entry: JournalEntry) -> datetime:
    """When a study began; one that does not say comes first."""
    try:
        return datetime.fromisoformat(entry.started_at).astimezone(UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _read_entry(store: RecordStore) -> JournalEntry:
    record, trials = store.read_record(), store.read_trials()
    kept = _read_kept(store, trials) if trials else None
    return JournalEntry(
        path=str(store.path),
        started_at=record.started_at,
        question=title_study(record),
        server=record.server.version,
        machine=describe_machine(record.host),
        host_name=record.host.host_name,
        trials_finished_count=sum(trial.status is TrialStatus.FINISHED for trial in trials),
        progress=read_progress(store).describe(store.path),
        answers=describe_answers(kept) if kept is not None else ("no trial has ended",),
        gains=list_gains(kept) if kept is not None else (),
        retests=list_retests(kept) if kept is not None else (),
    )


def _read_kept(store: RecordStore, trials: tuple[TrialRecord, ...]) -> KeptReport:
    """What the record's report says, or where that is of another version or of other trials, what it would say now."""
    try:
        kept = parse_kept((store.path / JSON_FILE).read_bytes())
    except (OSError, msgspec.DecodeError):
        kept = None
    ended = {(trial.planned.number, trial.status) for trial in trials}
    if kept is not None and kept.version == REPORT_VERSION and kept.trials == ended:
        return kept
    return parse_kept(compose_report(store).to_json())
