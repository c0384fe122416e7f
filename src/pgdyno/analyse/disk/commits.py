"""Find which transactions of a trial wait for flushes of WAL."""

from __future__ import annotations

from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialRecord
from pgdyno.spec.study import BUILTIN_SCRIPTS, READING_SCRIPTS

_GIVEN_UP = frozenset({"off", "false", "no", "0"})


def waits_for_flushes(record: TrialRecord) -> bool:
    """Return whether commits of this trial's sessions return only once their WAL is durable."""
    return not any(record.values.get(name, "on") in _GIVEN_UP for name in ("synchronous_commit", "fsync"))


def delays_flushes(record: TrialRecord, workload: PlannedWorkload) -> bool:
    """Return whether commit_delay lets flushes of this load wait for more commits: more than half of the clients may then share one.

    Source: PostgreSQL 18, access/transam/xlog.c, XLogFlush: a flush waits if commit_siblings others are in a transaction.
    """
    delay_us, siblings = (int(record.values.get(*each)) for each in (("commit_delay", "0"), ("commit_siblings", "5")))
    return delay_us > 0 and workload.writing_clients > siblings


def find_writing_ratio(data: TrialData, workload: PlannedWorkload) -> float | None:
    """Return the share of transactions whose script may write; None if that is unknown.

    Only what pgbench's own scripts do is known. WAL shows that a script of the user's writes if no other one can.
    """
    names = [name for name, _ in workload.scripts]
    writing = {name for name in names if name not in READING_SCRIPTS}
    if len(names) == 1:
        return float(len(writing))
    if data.pgbench is None or (len(writing) > 1 and not writing.issubset(BUILTIN_SCRIPTS)):
        return None
    counts = {script.number: script.transaction_count or 0 for script in data.pgbench.scripts}
    total = sum(counts.values())
    return (
        sum(counts.get(number, 0) for number, name in enumerate(names, 1) if name in writing) / total if total else None
    )
