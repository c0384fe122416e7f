"""Derive what standbys need: senders and slots, WAL that waits for them within bounds, and what their own queries may do.

Each standby is taken to have a replication slot. Which commits wait for a standby is never decided here: that trades latency
and availability for durability, which is the user's to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.errors import SpecError
from pgdyno.spec.study import SLOT_WAL_SETTING
from pgdyno.tune.checkpoints import wal_disk
from pgdyno.tune.draft import GB, MB, Draft, round_down, size
from pgdyno.tune.room import wal_room_bytes
from pgdyno.tune.rules.wal_pace import rate_of
from pgdyno.tune.slots import describe_lost_slots
from pgdyno.tune.types import Estimated, Known, Layer, Origin
from pgdyno.units import count_things, format_bytes_per_s, with_capital

_SENDING = "PostgreSQL 18 manual, section 19.6.1 “Sending Servers”"
_STANDBY = "PostgreSQL 18 manual, section 19.6.3 “Standby Servers”"
# A base backup takes one sender for the data and one for the WAL meanwhile. Source: pg_basebackup, --wal-method=stream.
_BACKUP_SENDERS = 2
# For a standby that is being rebuilt while the old slot still exists, and for one that a pg_basebackup makes.
_SPARE_SLOTS = 2
# Share of the space for all WAL, slots included: the data of a shared disk grow, too.
_SHARED_DISK_SHARE, _OWN_DISK_SHARE = 0.5, 0.9
_UNKNOWN_DATA_SHARE = 0.25
# A standby that was away for longer is copied anew in less time than it takes to replay.
_LONGEST_S = 24 * 3600.0
# Share of max_wal_size that a slot may keep in any case. It takes no space: the WAL since the last checkpoint, which begins at most
# max_wal_size / (1 + checkpoint_completion_target) back, stays for a recovery. Source: xlog.c, KeepLogSeg().
_LEAST_SHARE = 0.25
_SHORT_S = 1800.0
_OLTP_DELAY_S = 30.0
AWAY = "longest absence of a standby"
"""Name of the estimate of how long the WAL that is kept for a standby lasts."""


def derive_standbys(draft: Draft) -> None:
    """Decide replication settings, if there are standbys, after the WAL is decided."""
    standbys = draft.subject.standbys
    if standbys is None:
        return
    _put_level(draft, standbys)
    _put_count(
        draft,
        "max_wal_senders",
        round(2 * standbys.value) + _BACKUP_SENDERS,
        standbys,
        reason="each standby takes one, another when it reconnects before the lost one is noticed, and a base backup two.",
        formula="2 × standbys + 2, at least the server's own",
        trades="a little shared memory, and each standby must allow as many",
    )
    _put_count(
        draft,
        "max_replication_slots",
        round(standbys.value) + _SPARE_SLOTS,
        standbys,
        reason="each standby has a slot of its own, and one that is made anew needs another for a while.",
        formula="standbys + 2, at least the server's own",
        trades="a forgotten slot keeps WAL",
    )
    _put_slot_wal(draft, standbys)
    _put_kept_wal(draft, standbys)
    _put_feedback(draft, standbys)
    _put_delay(draft, standbys)
    draft.notes += _note(standbys)


def find_absence(draft: Draft) -> Iterator[Estimated]:
    """Yield for how long a standby may be away before its slot is given up; nothing without standbys or a bound."""
    if draft.subject.standbys is None:
        return
    rate = rate_of(draft)
    lasts_s = _find_absence_s(draft, rate)
    if lasts_s is not None:
        how = f"max_slot_wal_keep_size at {format_bytes_per_s(rate.value)} of WAL; then the standby is made anew"
        yield Estimated(what=AWAY, value=lasts_s, unit="s", how=how)


def _find_absence_s(draft: Draft, rate: Known) -> float | None:
    """Return how long the WAL that a slot keeps lasts at a rate; None without a bound or without WAL."""
    if draft.text(SLOT_WAL_SETTING) == "-1" or not rate.value:
        return None
    return draft.number(SLOT_WAL_SETTING) / rate.value


def _put_level(draft: Draft, standbys: Known) -> None:
    if draft.text("wal_level") == "logical":
        return
    draft.put(
        "wal_level",
        "replica",
        layer=Layer.REPLICATION,
        reason="standbys replay only WAL of this level.",
        formula="replica, unless it is logical",
        inputs=(standbys,),
        source="PostgreSQL 18 manual, section 19.5.1, wal_level",
        trades="bulk loads write WAL",
    )


def _put_count(
    draft: Draft, name: str, needed: int, standbys: Known, *, reason: str, formula: str, trades: str
) -> None:
    now, is_fixed = round(draft.number(name)), draft.is_fixed(name)
    if is_fixed and now < standbys.value:
        raise SpecError(
            f"{name} = {now} is too few for {count_things(round(standbys.value), 'standby')}",
            detail="each standby takes one",
            hint=f"leave it out of --set, or ask for {needed}",
        )
    is_more = now > needed and not is_fixed
    draft.put(
        name,
        str(now if is_more else needed),
        layer=Layer.REPLICATION,
        reason=f"{reason.removesuffix('.')}; {needed} would do." if is_more else reason,
        formula=formula,
        inputs=(standbys,),
        source=f"{_SENDING}, {name}",
        trades=trades,
        keeps_default=True,
    )


def _put_slot_wal(draft: Draft, standbys: Known) -> None:
    subject = draft.subject
    disk, rate = wal_disk(subject), rate_of(draft)
    share = _SHARED_DISK_SHARE if subject.wal_disk is None else _OWN_DISK_SHARE
    free = wal_room_bytes(subject)
    room = max(0.0, free * share - draft.number("max_wal_size"))
    if subject.wal_disk is None and subject.dataset.origin is Origin.ASSUMED:
        # They may take half of the disk, or be there already: as much as checkpoints may have leaves room for both.
        room = min(room, free * _UNKNOWN_DATA_SHARE)
    wanted = max(GB, rate.value * _LONGEST_S)
    least = draft.number("max_wal_size") * _LEAST_SHARE
    value = max(MB, round_down(max(least, min(room, wanted))) // MB * MB)
    bound = f"a day of WAL at {format_bytes_per_s(rate.value)}" if wanted <= room else "what the disk has room for"
    if least >= min(room, wanted):
        bound = "a quarter of max_wal_size, which takes no space of its own"
    draft.put(
        SLOT_WAL_SETTING,
        size(value),
        layer=Layer.REPLICATION,
        reason=f"a slot keeps WAL for a standby that is away, without a bound until the disk is full; this is {bound}.",
        formula=f"WAL rate × 24 h, at least 1 GB, at most {share:g} of the space that data leave free, less max_wal_size, and a quarter of it where the size of data is only assumed; never less than max_wal_size / 4",
        inputs=(standbys, rate, disk.free_bytes, *((subject.dataset,) if free < disk.free_bytes.value else ())),
        source=f"{_SENDING}, max_slot_wal_keep_size; src/backend/access/transam/xlog.c, KeepLogSeg()",
        trades="a standby that falls further behind has lost its slot and is made anew",
    )
    if (said := describe_lost_slots(draft.subject.slots, draft.text(SLOT_WAL_SETTING))) is not None:
        draft.notes.insert(0, f"{said[0]}. {with_capital(said[1])}.")
    lasts_s = _find_absence_s(draft, rate)
    if lasts_s is not None and lasts_s < _SHORT_S:
        draft.notes.append(
            f"a standby may be away for {_say_length(lasts_s)} at {format_bytes_per_s(rate.value)} of WAL before it has to be made anew: a larger"
            " disk for pg_wal, or an archive with restore_command, gives it longer."
        )


def _say_length(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _put_kept_wal(draft: Draft, standbys: Known) -> None:
    now = draft.number("wal_keep_size")
    reason = "each standby's slot keeps exactly what it lacks; this keeps WAL always, and never surely enough."
    if now:
        reason = "it is the server's own, which standbys without a slot need; with a slot for each, 0 does."
    draft.put(
        "wal_keep_size",
        size(now) if now else "0",
        layer=Layer.REPLICATION,
        reason=reason,
        formula="as it is: 0 unless the server has another",
        inputs=(standbys,),
        source=f"{_SENDING}, wal_keep_size, max_slot_wal_keep_size",
        trades="a standby without a slot may lack WAL that was removed" if not now else "that much disk space, always",
        keeps_default=True,
    )


def _put_feedback(draft: Draft, standbys: Known) -> None:
    is_long = draft.subject.workload.has_long_queries
    draft.put(
        "hot_standby_feedback",
        "on" if is_long else "off",
        layer=Layer.REPLICATION,
        reason="long queries on a standby are then not cancelled for rows that vacuum removes; the primary keeps these rows instead, and grows."
        if is_long
        else "queries on a standby are short in this class: those in the way of vacuum may be cancelled, rather than keep dead rows on the primary.",
        formula="on for mixed and analytic work, else off",
        source=f"{_STANDBY}, hot_standby_feedback",
        trades="bloat: the primary keeps dead rows for as long as the longest query of a standby, as if it ran there"
        if is_long
        else "queries that vacuum on the primary overtakes are cancelled after max_standby_streaming_delay",
        inputs=(standbys,),
        keeps_default=True,
    )


def _put_delay(draft: Draft, standbys: Known) -> None:
    subject = draft.subject
    is_long = subject.workload.has_long_queries
    value = subject.recovery_s.value if is_long else min(_OLTP_DELAY_S, subject.recovery_s.value)
    value = max(1.0, value // 1)
    shown = f"{value / 60:.0f}min" if value % 60 == 0 else f"{value:.0f}s"
    draft.put(
        "max_standby_streaming_delay",
        shown,
        layer=Layer.REPLICATION,
        reason="on a standby, replay waits this long for queries in its way; a failover waits for the replay.",
        formula="for mixed and analytic work the recovery time that you allow, else 30 s where that is less",
        inputs=(standbys, subject.recovery_s),
        source=f"{_STANDBY}, max_standby_streaming_delay",
        trades="a standby may be behind by as much, and commits with remote_apply wait as long",
        keeps_default=True,
    )


def _note(standbys: Known) -> Iterator[str]:
    many = standbys.value > 1
    names = "'ANY 1 (*)'" if many else "'*'"
    kept = " if the standby that has most of the WAL takes over" if many else ""
    wait = "while none of them answers" if many else "while the standby is away"
    yield (
        "synchronous_standby_names and synchronous_commit are left to you, as they trade speed and availability for durability: while"
        f" synchronous_standby_names is empty, a failover may lose the last commits; with {names} it loses none that was confirmed{kept}, and no"
        f" commit ends {wait}. `pgdyno compare --set synchronous_commit=local --set synchronous_commit=on --standbys {standbys.value:g}`"
        " measures what waiting costs."
    )
    yield (
        "the same settings are for each standby, which may have to take over; a standby stops replay, or does not start, with fewer max_connections,"
        " max_wal_senders, max_worker_processes, max_prepared_transactions or max_locks_per_transaction than the primary: raise them"
        " on standbys first, lower them on the primary first."
    )
    yield (
        "not derived for standbys: primary_conninfo and primary_slot_name, which each has of its own (a slot that no standby uses is"
        " to be dropped), archiving, and wal_receiver_status_interval and wal_sender_timeout, whose built-in 10 s and 1 min serve."
    )
