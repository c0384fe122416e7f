"""Find the record that a command is about."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pgdyno.conduct.progress import read_progress
from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError
from pgdyno.record.store import RecordStore, find_records, no_records_in, open_record
from pgdyno.record.types import EARLIEST


def find_record(named: Path | None, records: Path, *, ui: Ui) -> RecordStore:
    """Return the record that a user named, or the newest of a folder among those that can be read.

    Raises:
        SpecError: There is none.
    """
    if named is not None:
        return open_record(named)
    found = find_records(records)
    if not found:
        raise no_records_in([records])
    began: dict[RecordStore, datetime] = {}
    problems = []
    for store in found:
        try:
            # Times of the clock at each place do not tell: it is put back in autumn, and records come from other zones.
            began[store] = store.read_record().began or EARLIEST
        except SpecError as error:
            problems.append(error)
    if not began:
        raise problems[0]
    for problem in problems:
        ui.say(f"left out: {problem.reason}")
    return max(began, key=lambda store: began[store])


def find_record_to_read(named: Path | None, records: Path, *, ui: Ui) -> RecordStore:
    """Return the record as `find_record` does, and warn if it has not ended.

    Raises:
        SpecError: There is none.
    """
    store = find_record(named, records, ui=ui)
    progress = read_progress(store)
    state = progress.describe(store.path)
    # A record without a finished trial has nothing to read, which is an error of its own.
    if state and progress.finished_count:
        ui.say(f"{store.path} is {state}")
    return store
