"""Find what bounds max_wal_size, and say what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pgdyno.tune.checkpoints import interval_s, recovery_s, wal_by_recovery_bytes, wal_rate
from pgdyno.tune.draft import MB, Draft, round_down, round_up, size
from pgdyno.tune.room import STOCK_MAX_WAL_BYTES, checkpoints_room_bytes, describe_shortage, share_of_left_bytes
from pgdyno.tune.rules.wal_pace import SHORTEST_S, compression_of, distance_of, longest_s
from pgdyno.tune.types import Origin
from pgdyno.units import format_bytes

# Checkpoints closer together than this make the server ask for a larger max_wal_size in its log.
# Source: PostgreSQL 18 manual, section 19.5.2, checkpoint_warning.
_WARNED_S = 30.0
# Longer recovery times are not suggested.
_LONGEST_ADVICE_MIN = 60


class WalLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much WAL a load could use, and how much of it max_wal_size allows."""

    wanted_bytes: float
    by_disk_bytes: float
    by_recovery_bytes: float
    least_bytes: float
    """The fewest that the server takes."""

    @property
    def value_bytes(self) -> float:
        """What is wanted, rounded up, or what is allowed, rounded down."""
        value = min(round_up(self.wanted_bytes), round_down(self.allowed_bytes))
        return max(self.least_bytes, value // MB * MB)

    @property
    def allowed_bytes(self) -> float:
        """What both the disk and the recovery allow."""
        return min(self.by_disk_bytes, self.by_recovery_bytes)

    @property
    def is_bound(self) -> bool:
        """Whether less is allowed than is wanted."""
        return self.allowed_bytes < self.wanted_bytes

    @property
    def is_by_disk(self) -> bool:
        """Whether the disk allows less than the recovery does."""
        return self.by_disk_bytes < self.by_recovery_bytes


def find_limit(draft: Draft, compression: str, *, wanted_bytes: float = math.inf) -> WalLimit:
    """Find what the disk and the allowed recovery leave of the WAL that a load could use.

    Args:
        draft: Subject and settings so far.
        compression: Value of wal_compression, one of `COMPRESSIONS`.
        wanted_bytes: WAL that the load could use.
    """
    subject = draft.subject
    by_recovery = wal_by_recovery_bytes(subject, compression)
    if subject.recovery_s.origin is Origin.ASSUMED:
        # The limit is only assumed: it must not be lower than on an untuned server, nor than what the server asks for.
        by_recovery = max(by_recovery, STOCK_MAX_WAL_BYTES, _unwarned_bytes(draft, compression))
    return WalLimit(
        wanted_bytes=wanted_bytes,
        by_disk_bytes=checkpoints_room_bytes(draft),
        by_recovery_bytes=by_recovery,
        least_bytes=2 * subject.wal_segment_bytes,
    )


def _unwarned_bytes(draft: Draft, compression: str) -> float:
    """Return the least max_wal_size under which the load brings checkpoints no more often than the server warns of."""
    written = wal_rate(draft.subject, compression, timeout_s=_WARNED_S).value * _WARNED_S
    segment = draft.subject.wal_segment_bytes
    return round_up(math.ceil(written / segment) * segment * (1 + draft.number("checkpoint_completion_target")))


def describe_limit(draft: Draft, limit: WalLimit) -> str:
    """Describe what bounds max_wal_size, as its reason."""
    lasts_s, allowed_s = _find_recovery_s(draft, limit.value_bytes), draft.subject.recovery_s.value
    why = f"it is the most that recovery in {_format_duration(allowed_s)} allows"
    if limit.is_by_disk:
        why = "it is the most that the free space allows"
        if limit.value_bytes > limit.by_disk_bytes:
            why = "it is the least that the server takes, and more than the free space allows"
        elif limit.value_bytes > share_of_left_bytes(draft):
            least = (
                "what is built in" if limit.value_bytes == STOCK_MAX_WAL_BYTES else "what the disk without them allows"
            )
            why = f"data leave no room for more, and it is {least}"
    elif lasts_s > allowed_s:
        least = f"the least with which checkpoints are {_WARNED_S:g} s apart, below which the server warns of them"
        if limit.value_bytes in {limit.least_bytes, STOCK_MAX_WAL_BYTES}:
            least = (
                "what is built in" if limit.value_bytes == STOCK_MAX_WAL_BYTES else "the least that the server takes"
            )
        why = f"it is {least}, and recovery after a crash takes up to {_round_duration(lasts_s)} even so"
    return f"{why}; the load could use {format_bytes(round_up(limit.wanted_bytes))}."


def note_limit(draft: Draft, limit: WalLimit) -> Iterator[str]:
    """Say where the disk is too small, and what a bound costs: one that is only assumed, or that makes checkpoints come often."""
    subject, held = draft.subject, limit.value_bytes
    shortage = tuple(describe_shortage(draft, max(held, STOCK_MAX_WAL_BYTES) if limit.is_by_disk else held))
    yield from shortage
    if not limit.is_bound:
        return
    longest = longest_s(draft)
    distance = distance_of(draft, held)
    every_s = interval_s(subject, compression_of(draft), timeout_s=longest, distance_bytes=distance)
    is_often = every_s < min(SHORTEST_S, longest)
    is_assumed = subject.recovery_s.origin is Origin.ASSUMED and not limit.is_by_disk
    if not is_often and not is_assumed:
        return
    often = f", which takes a checkpoint every {every_s:.{0 if every_s >= 10 else 1}f} s," if is_often else ","
    only = f"max_wal_size is only {size(held)}{often}"
    if limit.is_by_disk:
        yield from () if shortage else (f"{only} as its disk has no room for more: give pg_wal a larger one.",)
        return
    allowed = _format_duration(subject.recovery_s.value)
    if is_assumed:
        allowed = f"the {allowed} that are assumed"
    purpose = f"so that recovery after a crash ends within {allowed}"
    if _find_recovery_s(draft, held) > subject.recovery_s.value:
        purpose = f"and recovery after a crash may even so take longer than {allowed}"
    wish = ": say with --recovery how long it may take" if is_assumed else ": a longer --recovery allows more"
    yield f"{only} {purpose}{wish}; {_describe_enough(draft, limit)}."


def _describe_enough(draft: Draft, limit: WalLimit) -> str:
    wanted_bytes = min(round_up(limit.wanted_bytes), limit.by_disk_bytes)
    minutes = math.ceil(_find_recovery_s(draft, wanted_bytes) / 60)
    if minutes > _LONGEST_ADVICE_MIN:
        return f"recovery from all the WAL that load and disk can take would last {math.ceil(minutes / 60)} h"
    return f"{minutes}min allows all the WAL that load and disk can take"


def _find_recovery_s(draft: Draft, wal_bytes: float) -> float:
    return recovery_s(draft.subject, wal_bytes, compression_of(draft))


def _format_duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % 60 or seconds < 120 else f"{seconds / 60:g} min"


def _round_duration(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"
