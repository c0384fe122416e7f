"""Find the replication slots that a bound on their WAL would give up at once, because they are further behind already.

Source: src/backend/access/transam/xlog.c, KeepLogSeg(), and slot.c, InvalidateObsoleteReplicationSlots(): a checkpoint gives up each slot
that is further behind than max_slot_wal_keep_size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pgdyno.errors import HostError
from pgdyno.record.machine.tunables import SlotState
from pgdyno.spec.study import SLOT_WAL_SETTING
from pgdyno.tune.draft import MB
from pgdyno.tune.types import DerivedSettings, Target
from pgdyno.units import format_bytes, parse_in_unit

_UNBOUNDED = "-1"


def describe_lost_slots(slots: Sequence[SlotState], limit: str) -> tuple[str, str] | None:
    """Say which slots a limit gives up and how far each is behind, and what to do instead; None if it gives up none.

    Args:
        slots: Of the server.
        limit: The value of max_slot_wal_keep_size.
    """
    if limit == _UNBOUNDED:
        return None
    most_bytes = parse_in_unit(limit, "MB", is_integer=True) * MB
    lost = [one for one in slots if one.behind_bytes > most_bytes]
    if not lost:
        return None
    named = ", ".join(
        f"{one.name} ({format_bytes(one.behind_bytes)} behind{'' if one.is_active else ', nothing is connected to it'})"
        for one in lost
    )
    kinds = dict.fromkeys("subscriber" if one.is_logical else "standby" for one in lost)
    word, them = ("slot", f"its {next(iter(kinds))} has")
    if len(lost) > 1:
        word, them = ("slots", f"their {' and '.join(f'{kind}s' for kind in kinds)} have")
    fact = f"{SLOT_WAL_SETTING} = {limit} gives up the replication {word} {named} at the next checkpoint, and {them} to be made anew"
    hint = (
        "wait until it has caught up; drop a slot that nobody needs"
        f" (`SELECT pg_drop_replication_slot('{lost[0].name}')`); or keep more with `--set {SLOT_WAL_SETTING}=SIZE`, -1 for no bound"
    )
    return fact, hint


def refuse_lost_slots(tuning: DerivedSettings, changing: Collection[str]) -> None:
    """Refuse to apply a bound that gives up a slot which is further behind already.

    Args:
        tuning: The derived settings.
        changing: Names of those that are not in force yet.

    Raises:
        HostError: A slot would be given up.
    """
    limit = tuning.values_of(Target.POSTGRESQL).get(SLOT_WAL_SETTING)
    said = (
        None if limit is None or SLOT_WAL_SETTING not in changing else describe_lost_slots(tuning.subject.slots, limit)
    )
    if said is not None:
        fact, hint = said
        raise HostError(fact, detail="nothing was applied", hint=hint)
