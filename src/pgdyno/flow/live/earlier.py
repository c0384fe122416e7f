"""Find what the records beside one answered to the same questions, for the page of a record that is being measured.

What earlier calls have kept is read at once. A record that nobody has read yet takes as long as its report: such are read one by one,
in the pauses that a measurement leaves, and kept.
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
        self._reader: ResultReader | None = None
        self._results: list[Result] = []
        self._waiting: list[RecordStore] = []

    @property
    def unread_count(self) -> int:
        """Number of the records that were not read yet."""
        return len(self._waiting)

    def read_kept(self) -> None:
        """Read what is kept of all of them, once."""
        if self._reader is not None:
            return
        self._reader = reader = ResultReader()
        seen = {identify_record(self._store)}
        # The newest first, by the names that records get.
        for store in reversed(find_records(self._store.path.parent)):
            if store.path == self._store.path or store.is_locked:
                continue
            try:
                made = identify_record(store)
                kept = None if made in seen else reader.find(store)
            except (PgdynoError, OSError):
                # `pgdyno history` says what cannot be read, and why.
                continue
            if made in seen:
                continue
            if len(seen) > _MOST_RECORDS:
                break
            seen.add(made)
            if kept is None:
                self._waiting.append(store)
            else:
                self._results += kept

    def read_next(self) -> bool:
        """Read one that nobody has read yet; return False if there is none."""
        if self._reader is None or not self._waiting:
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
