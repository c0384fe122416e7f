"""Derive the WAL layer: max_wal_size, min_wal_size, checkpoint_timeout, wal_compression and others.

Settings that give up durability (fsync, full_page_writes, synchronous_commit) are not decided here, but listed as
`what_ifs` in `derive.py`.
"""

from __future__ import annotations

import math

from pgdyno.analyse.wal_room import find_wal_room
from pgdyno.errors import SpecError
from pgdyno.facts.gucs import read_value
from pgdyno.tune.checkpoints import (
    COMPRESSIONS,
    interval_s,
    is_bound_by_wal,
    recovery_s,
    wal_by_recovery_bytes,
    wal_disk,
    wal_distance_bytes,
    wal_rate,
)
from pgdyno.tune.draft import GB, MB, Draft, round_down, round_up, size
from pgdyno.tune.room import wal_room_bytes
from pgdyno.tune.types import Known, Layer, Origin, WorkloadClass
from pgdyno.units import PAGE_BYTES, format_bytes

_LONGEST_S, _SHORTEST_S = 1800.0, 300.0
# Longer recovery times are not suggested.
_LONGEST_ADVICE_MIN = 60
# Headroom for a busier hour, so that the clock starts checkpoints and not max_wal_size.
_HEADROOM = 1.25
_STOCK_MAX_WAL_BYTES, _STOCK_MIN_WAL_BYTES = 1 * GB, 80 * MB
_COW_FILESYSTEMS = {"btrfs", "zfs", "bcachefs"}
# A session waits for its own CPU time, while many sessions share a write to the disk. This also holds for data larger
# than memory: the limit is then the disk's IOPS, while WAL is written in few large pieces.
_CPU_WEIGHT = 2.0
# Time after a quiet hour until the server's estimate of the WAL that it needs has recovered.
_LEARNING_S = 300.0
_CONFIGURATION = "PostgreSQL 18 manual, section 28.5 “WAL Configuration”"


def derive_wal(draft: Draft) -> None:
    """Decide WAL and checkpoints, after memory is decided.

    Raises:
        SpecError: The user fixed a max_wal_size that does not fit the disk, or a max_wal_size or min_wal_size below two
            segments.
    """
    _check_fixed(draft)
    # First, because it decides how many pages a recovery writes.
    _put_compression(draft)
    _put_max_wal(draft)
    _put_timeout(draft)
    _put_min_wal(draft)
    _put_commit_delay(draft)
    _put_cow(draft)


def _check_fixed(draft: Draft) -> None:
    least = 2 * draft.subject.wal_segment_bytes
    for name in ("max_wal_size", "min_wal_size"):
        if draft.is_fixed(name) and draft.number(name) < least:
            raise SpecError(
                f"a server with {name} = {draft.text(name)} does not start",
                detail=f"its WAL segments are of {format_bytes(draft.subject.wal_segment_bytes)}",
                hint=f"ask for {size(least)}, two of them, or more",
            )
    free, room = wal_disk(draft.subject).free_bytes, wal_room_bytes(draft.subject)
    wanted = draft.number("max_wal_size")
    if draft.is_fixed("max_wal_size") and wanted > room:
        data = f", of which data will take {format_bytes(free.value - room)}" if room < free.value else ""
        raise SpecError(
            f"max_wal_size of {format_bytes(wanted)} does not fit the disk",
            detail=f"{format_bytes(free.value)} are free ({free.how}){data}",
            hint="ask for less, or give pg_wal a volume of its own",
        )


def rate_of(draft: Draft) -> Known:
    """Return the WAL rate with the checkpoints that the settings bring about, after all of them are decided."""
    return wal_rate(
        draft.subject,
        compression_of(draft),
        timeout_s=draft.number("checkpoint_timeout"),
        distance_bytes=distance_of(draft, draft.number("max_wal_size")),
    )


def distance_of(draft: Draft, max_wal_bytes: float) -> float:
    """Return the WAL between two checkpoints that a max_wal_size triggers."""
    return wal_distance_bytes(draft.subject, max_wal_bytes, draft.number("checkpoint_completion_target"))


def _longest_s(draft: Draft) -> float:
    return draft.number("checkpoint_timeout") if draft.is_fixed("checkpoint_timeout") else _LONGEST_S


def _find_most_wal(draft: Draft, compression: str) -> tuple[float, float]:
    """Return the most WAL for which the disk has space, and from which the server recovers in time."""
    subject = draft.subject
    by_recovery = wal_by_recovery_bytes(subject, compression)
    if subject.recovery_s.origin is Origin.ASSUMED:
        # The limit is only assumed: it must not be lower than on an untuned server.
        by_recovery = max(by_recovery, _STOCK_MAX_WAL_BYTES)
    by_disk = find_wal_room(wal_room_bytes(subject), is_shared=subject.wal_disk is None)
    return by_disk, by_recovery


def _put_max_wal(draft: Draft) -> None:
    subject, longest_s = draft.subject, _longest_s(draft)
    rate = wal_rate(subject, compression_of(draft), timeout_s=longest_s)
    target = draft.number("checkpoint_completion_target")
    wanted = max(_STOCK_MAX_WAL_BYTES, rate.value * longest_s * (1 + target) * _HEADROOM)
    by_disk, by_recovery = _find_most_wal(draft, compression_of(draft))
    most = min(by_disk, by_recovery)
    reason = f"it holds the WAL of {longest_s / 60:g} min, so that the clock starts checkpoints, even in a busy hour."
    if most < wanted:
        bound = (
            "the free space allows"
            if by_disk < by_recovery
            else f"recovery in {_format_duration(subject.recovery_s.value)} allows"
        )
        reason = f"it is the most that {bound}; the load could use {format_bytes(round_up(wanted))}."
        if by_recovery <= by_disk and subject.recovery_s.origin is Origin.ASSUMED:
            draft.notes.append(_describe_bound(draft, round_down(most), min(round_up(wanted), by_disk)))
    # Round up the wanted size, and round down the allowed one.
    value = min(round_up(wanted), round_down(most))
    draft.put(
        "max_wal_size",
        size(max(2 * subject.wal_segment_bytes, value // MB * MB)),
        layer=Layer.WAL,
        reason=reason,
        formula=f"WAL rate × {longest_s / 60:g} min × (1 + checkpoint_completion_target) × {_HEADROOM:g}, at least the built-in 1 GB and two segments, at most what recovery in time and 1/4 of the space that data leave free (0.6 of an own volume's) allow",
        inputs=(rate, subject.recovery_s, wal_disk(subject).free_bytes, subject.dataset, *_image_left(draft)),
        source=f"{_CONFIGURATION}; src/backend/access/transam/xlog.c, CalculateCheckpointSegments()",
        trades="space for WAL, and a longer recovery after a crash",
        keeps_default=True,
    )


def _describe_bound(draft: Draft, held_bytes: float, wanted_bytes: float) -> str:
    """Describe what the assumed recovery time costs."""
    subject = draft.subject
    allowed, wish = _format_duration(subject.recovery_s.value), "say with --recovery how long it may take"
    minutes = math.ceil(recovery_s(subject, wanted_bytes, compression_of(draft)) / 60)
    enough = f"{minutes}min allows all the WAL that load and disk can take"
    if minutes > _LONGEST_ADVICE_MIN:
        enough = f"recovery from all the WAL that load and disk can take would last {math.ceil(minutes / 60)} h"
    if recovery_s(subject, held_bytes, compression_of(draft)) > subject.recovery_s.value:
        longer = f"{size(held_bytes)} of max_wal_size is little, but recovery after a crash may take longer than {allowed} even so"
        return f"{longer}, which is assumed: {wish}; {enough}."
    distance = distance_of(draft, held_bytes)
    every_s = interval_s(subject, compression_of(draft), timeout_s=_LONGEST_S, distance_bytes=distance)
    often = f", which takes a checkpoint every {every_s:.0f} s," if every_s < _SHORTEST_S else ","
    held = f"max_wal_size is only {size(held_bytes)}{often} so that recovery after a crash ends within {allowed}"
    return f"{held}, which is assumed: {wish}; {enough}."


def _format_duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % 60 or seconds < 120 else f"{seconds / 60:g} min"


def _put_timeout(draft: Draft) -> None:
    subject, compression = draft.subject, compression_of(draft)
    full = distance_of(draft, draft.number("max_wal_size"))
    full_s = interval_s(subject, compression, timeout_s=_LONGEST_S, distance_bytes=full)
    by_wal = interval_s(subject, compression, timeout_s=_LONGEST_S, distance_bytes=full / _HEADROOM)
    rate = wal_rate(subject, compression, timeout_s=_LONGEST_S, distance_bytes=full / _HEADROOM)
    reason = "fewer checkpoints write fewer full-page images to the WAL; max_wal_size lasts this long."
    if by_wal < _SHORTEST_S:
        reason = "fewer checkpoints write fewer full-page images to the WAL; max_wal_size lasts this long, except in a busier hour."
    if full_s < _SHORTEST_S:
        reason = "max_wal_size is full sooner, which starts the checkpoints under this load; this starts them only where less is written."
    draft.put(
        "checkpoint_timeout",
        f"{max(_SHORTEST_S, by_wal // 300 * 300) / 60:.0f}min",
        layer=Layer.WAL,
        reason=reason,
        formula="max_wal_size / (1 + checkpoint_completion_target) / WAL rate / 1.25, in 5 min, from 5 to 30 min",
        inputs=(rate, subject.recovery_s, wal_disk(subject).free_bytes),
        source=_CONFIGURATION,
        trades="a longer recovery after a crash",
    )


def _put_min_wal(draft: Draft) -> None:
    rate = rate_of(draft)
    value = min(draft.number("max_wal_size") / 2, max(_STOCK_MIN_WAL_BYTES, rate.value * _LEARNING_S))
    draft.put(
        "min_wal_size",
        size(max(2 * draft.subject.wal_segment_bytes, round_down(value) // MB * MB)),
        layer=Layer.WAL,
        reason="after a quiet hour the server still has WAL files to reuse, instead of creating them under load.",
        formula="WAL rate × 5 min, by when the server has learnt its need again; at least 80 MB and two segments, at most max_wal_size / 2",
        inputs=(rate,),
        source="PostgreSQL 18 manual, section 19.5.2, min_wal_size",
        trades="that much disk space, always",
    )


def _put_compression(draft: Draft) -> None:
    subject = draft.subject
    guc = draft.guc("wal_compression")
    if guc is None or subject.workload is WorkloadClass.OLTP_READ:
        return
    bandwidth = wal_disk(subject).write_bytes_per_s
    costs = {
        name: _CPU_WEIGHT * cpu_s / subject.cpus.value + left * PAGE_BYTES / bandwidth.value
        for name, (cpu_s, left) in COMPRESSIONS.items()
        if name in guc.values
    }
    ideal = min(costs, key=costs.__getitem__)
    missing = [name for name in costs if name in subject.missing_values.get("wal_compression", ())]
    for name in missing:
        del costs[name]
    is_fixed = draft.is_fixed("max_wal_size")
    most = draft.number("max_wal_size") if is_fixed else min(_find_most_wal(draft, "off"))
    rate = wal_rate(subject, "off", timeout_s=_longest_s(draft), distance_bytes=distance_of(draft, most))
    is_bound = is_bound_by_wal(subject, rate)
    best = min(costs, key=costs.__getitem__) if is_bound else "off"
    lack = f"; this build lacks {' and '.join(missing)}" if missing else ""
    reason = f"full-page images are most of the WAL after a checkpoint, and here writing them costs more than compressing them{lack}."
    if best == "off":
        others = ", ".join(name for name in costs if name != "off")
        reason = f"compressing full-page images with {others} would cost these CPUs more than it saves this disk{lack}."
    if not is_bound:
        reason = "the disk takes three times the WAL that this load writes: compression would only cost CPU time."
    elif ideal in missing and not draft.is_fixed("wal_compression"):
        draft.notes.append(
            f"wal_compression would be {ideal}, which the PostgreSQL that this is derived for was built without: prefer a build that has it."
        )
    draft.put(
        "wal_compression",
        best,
        layer=Layer.WAL,
        reason=reason,
        formula="off unless WAL takes a third of what the disk writes; then the least of 2 × CPU time / CPUs + bytes left / write bandwidth, for an image of 8 kB with off, lz4, zstd and pglz as far as the build has them",
        inputs=(subject.cpus, bandwidth, rate),
        source="PostgreSQL 18 manual, section 19.5.1, wal_compression",
        trades=f"{COMPRESSIONS[best][0] * 1e6:.2g} µs of CPU time for each page's first change after a checkpoint"
        if best != "off"
        else "",
        keeps_default=True,
    )


def compression_of(draft: Draft) -> str:
    """Return the value of wal_compression, one of `COMPRESSIONS`; `on` means pglz."""
    guc = draft.guc("wal_compression")
    return "off" if guc is None else str(read_value(guc, draft.text(guc.name)))


def _image_left(draft: Draft) -> tuple[Known, ...]:
    """Return the share of a page image that is left after compression, if wal_compression is on."""
    compression = compression_of(draft)
    if compression == "off":
        return ()
    how = f"wal_compression = {compression}, the mean of three kinds of rows"
    return (Known.assumed("share left of a page image", COMPRESSIONS[compression][1], "count", how),)


def _put_commit_delay(draft: Draft) -> None:
    draft.put(
        "commit_delay",
        "0",
        layer=Layer.WAL,
        reason="commits that arrive during a flush already share the next one; a delay would only make each later.",
        source="PostgreSQL 18 manual, section 28.5, commit_delay; src/backend/access/transam/xlog.c, XLogFlush()",
        keeps_default=draft.subject.workload is WorkloadClass.OLTP_WRITE,
    )


def _put_cow(draft: Draft) -> None:
    filesystem = wal_disk(draft.subject).filesystem
    if filesystem not in _COW_FILESYSTEMS:
        return
    for name, reason, trades in (
        (
            "wal_init_zero",
            "a copy-on-write file system gains nothing from files filled with zeros ahead.",
            "a full disk is noticed late",
        ),
        (
            "wal_recycle",
            "a copy-on-write file system writes new files as fast as old ones.",
            "a file is created for each segment of WAL",
        ),
    ):
        draft.put(
            name,
            "off",
            layer=Layer.WAL,
            reason=reason,
            formula=f"off on {filesystem}",
            inputs=(wal_disk(draft.subject).free_bytes,),
            source=f"PostgreSQL 18 manual, section 19.5.1, {name}",
            trades=trades,
        )
