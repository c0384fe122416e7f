"""Find what the records beside one answered to the same questions, for the page of a record that is being measured.

What earlier calls have kept is read at once. A record that nobody has read yet takes as long as its report: such are read one by one
while no trial runs, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pgdyno.analyse.history.histories import History, Result, collect_histories
from pgdyno.errors import PgdynoError
from pgdyno.flow.records.compare import identify_record
from pgdyno.flow.records.results import ResultReader
from pgdyno.record.store import RecordStore, find_records

# So many say whether the level has changed; in memory each takes a megabyte or two, with its 80 trials.
_MOST_RECORDS = 30


class EarlierResults:
    """The results of the newest other records in a record's folder.

    Args:
        store: The record.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._measured: RecordStore | None = store
        """The record of the folder that was last seen to be measured."""
        self._reader: ResultReader | None = None
        self._results: list[Result] = []
        self._waiting: list[RecordStore] = []

    @property
    def unread_count(self) -> int:
        """Number of the records that were not read yet."""
        return len(self._waiting)

    @property
    def is_free(self) -> bool:
        """True if there is one to read, and no record of the folder is being measured."""
        return bool(self._waiting) and self._find_measured() is None

    def read_kept(self) -> None:
        """Read what is kept of all of them, once."""
        if self._reader is not None:
            return
        self._reader = reader = ResultReader()
        seen: set[tuple[object, ...]] = set()
        for store in self._list_earlier():
            try:
                made = identify_record(store)
                kept = None if made in seen else reader.find(store)
            except (PgdynoError, OSError):
                # `pgdyno history` says what cannot be read, and why.
                continue
            if made in seen:
                continue
            if len(seen) >= _MOST_RECORDS:
                break
            seen.add(made)
            if kept is None:
                self._waiting.append(store)
            else:
                self._results += kept

    def read_next(self) -> bool:
        """Read one that nobody has read yet; return False if there is none, or while a trial runs."""
        if self._reader is None or not self._waiting or self._is_trial_running():
            return False
        store = self._waiting.pop(0)
        with suppress(PgdynoError, OSError):
            self._results += self._reader.read(store)
        return True

    def collect(self, present: Sequence[Result]) -> tuple[History, ...]:
        """Return the histories of two results or more that end with one of the record's own.

        Args:
            present: The record's own results.
        """
        last = max((one.began for one in present), default=None)
        earlier = [one for one in self._results if last is not None and one.began < last]
        histories = collect_histories([*earlier, *present], ending_in={one.path for one in present})
        return tuple(one for one in histories if len(one.results) > 1)

    def _list_earlier(self) -> list[RecordStore]:
        """List the records that began before the record, the newest first."""
        own = self._store.read_record().began
        begun = []
        for store in find_records(self._store.path.parent):
            with suppress(PgdynoError, OSError):
                began = store.read_record().began
                if own is not None and began is not None and began < own and not store.is_locked:
                    begun.append((began, store))
        return [store for _, store in sorted(begun, key=lambda one: one[0], reverse=True)]

    def _find_measured(self) -> RecordStore | None:
        """Find a record of the folder that is being measured, first the one that was when this was last asked."""
        if self._measured is None or not self._measured.is_locked:
            self._measured = next((one for one in find_records(self._store.path.parent) if one.is_locked), None)
        return self._measured

    def _is_trial_running(self) -> bool:
        measured = self._find_measured()
        return measured is not None and any(one.interrupted_numbers() for one in (measured, measured.scaling))
