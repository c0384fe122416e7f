"""Tell whether a record has trials left that a resumed study would run."""

from __future__ import annotations

import msgspec

from pgdyno.conduct.search import Searcher
from pgdyno.conduct.sequential import SequentialComparison
from pgdyno.conduct.steps import list_open_trials
from pgdyno.record.store import RecordStore


def is_finished(store: RecordStore) -> bool:
    """Return whether no trial is left of a record and of the sweep over clients that follows it."""
    if not are_own_trials_finished(store):
        return False
    return store.read_record().study.scaling is None or (
        store.scaling.exists and are_own_trials_finished(store.scaling)
    )


def are_own_trials_finished(store: RecordStore) -> bool:
    """Return whether none of a record's planned trials is wanted any more, and no final look is due."""
    # A resumed study tries again what was given up.
    record = msgspec.structs.replace(store.read_record(), refused_variants={})
    left = [trial for _, trial in list_open_trials(store, record)]
    if not left and (record.plan.experiment is None or not record.plan.experiment.final_look):
        return True
    if record.plan.search is not None:
        searcher = Searcher(record, record.plan.search)
        searcher.take_finished(store)
        return searcher.is_settled
    if record.plan.experiment is None:
        return False
    sequential = SequentialComparison(record, record.plan.experiment)
    sequential.take_finished(store)
    return not (any(map(sequential.is_left, left)) or sequential.find_due_looks() or sequential.list_lacking())
