"""Derive the WAL layer: max_wal_size, min_wal_size, checkpoint_timeout, wal_compression and others.

Settings that give up durability (fsync, full_page_writes, synchronous_commit) are not decided here, but listed as
`what_ifs` in `derive.py`.
"""

from __future__ import annotations

from pgdyno.errors import SpecError
from pgdyno.tune.checkpoints import (
    COMPRESSIONS,
    interval_s,
    is_bound_by_wal,
    wal_disk,
    wal_rate,
)
from pgdyno.tune.draft import MB, Draft, round_down, size
from pgdyno.tune.room import STOCK_MAX_WAL_BYTES, checkpoints_room_bytes, describe_shortage, left_bytes, list_takers
from pgdyno.tune.rules.wal_limits import describe_limit, find_limit, note_limit
from pgdyno.tune.rules.wal_pace import LONGEST_S, SHORTEST_S, compression_of, distance_of, longest_s, rate_of
from pgdyno.tune.types import Known, Layer, WorkloadClass
from pgdyno.units import PAGE_BYTES, format_bytes

# Headroom for a busier hour, so that the clock starts checkpoints and not max_wal_size.
_HEADROOM = 1.25
_STOCK_MIN_WAL_BYTES = 80 * MB
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
    if not draft.is_fixed("max_wal_size"):
        return
    free, wanted, room = wal_disk(draft.subject).free_bytes, draft.number("max_wal_size"), left_bytes(draft)
    if wanted > max(room, checkpoints_room_bytes(draft), least):
        others = "".join(f", and {takes}" for takes in list_takers(draft))
        raise SpecError(
            f"max_wal_size of {format_bytes(wanted)} does not fit the disk",
            detail=f"{format_bytes(free.value)} are free ({free.how}){others}",
            hint="ask for less, or give pg_wal a volume of its own",
        )
    if wanted > room:
        draft.notes += describe_shortage(draft, wanted)


def _put_max_wal(draft: Draft) -> None:
    subject, compression, clock_s = draft.subject, compression_of(draft), longest_s(draft)
    rate = wal_rate(subject, compression, timeout_s=clock_s)
    target = draft.number("checkpoint_completion_target")
    wanted = max(STOCK_MAX_WAL_BYTES, rate.value * clock_s * (1 + target) * _HEADROOM)
    limit = find_limit(draft, compression, wanted_bytes=wanted)
    reason = f"it holds the WAL of {clock_s / 60:g} min, so that the clock starts checkpoints, even in a busy hour."
    if limit.is_bound:
        reason = describe_limit(draft, limit)
    draft.notes += () if draft.is_fixed("max_wal_size") else note_limit(draft, limit)
    draft.put(
        "max_wal_size",
        size(limit.value_bytes),
        layer=Layer.WAL,
        reason=reason,
        formula=f"WAL rate × {clock_s / 60:g} min × (1 + checkpoint_completion_target) × {_HEADROOM:g}, at least the built-in 1 GB and two segments, at most what recovery in time (where that is only assumed, no less than the WAL of 30 s) and 1/4 of the space that data and wal_keep_size leave free (0.6 of an own volume's) allow; where data are still to come, no less than the built-in 1 GB or 1/4 of the space without them",
        inputs=(rate, subject.recovery_s, wal_disk(subject).free_bytes, subject.dataset, *_image_left(draft)),
        source=f"{_CONFIGURATION}; src/backend/access/transam/xlog.c, CalculateCheckpointSegments()",
        trades="space for WAL, and a longer recovery after a crash",
        keeps_default=True,
    )


def _put_timeout(draft: Draft) -> None:
    subject, compression = draft.subject, compression_of(draft)
    full = distance_of(draft, draft.number("max_wal_size"))
    full_s = interval_s(subject, compression, timeout_s=LONGEST_S, distance_bytes=full)
    by_wal = interval_s(subject, compression, timeout_s=LONGEST_S, distance_bytes=full / _HEADROOM)
    rate = wal_rate(subject, compression, timeout_s=LONGEST_S, distance_bytes=full / _HEADROOM)
    reason = "fewer checkpoints write fewer full-page images to the WAL; max_wal_size lasts this long."
    if by_wal < SHORTEST_S:
        reason = "fewer checkpoints write fewer full-page images to the WAL; max_wal_size lasts this long, except in a busier hour."
    if full_s < SHORTEST_S:
        reason = "max_wal_size is full sooner, which starts the checkpoints under this load; this starts them only where less is written."
    draft.put(
        "checkpoint_timeout",
        f"{max(SHORTEST_S, by_wal // 300 * 300) / 60:.0f}min",
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
    most = draft.number("max_wal_size") if is_fixed else find_limit(draft, "off").allowed_bytes
    rate = wal_rate(subject, "off", timeout_s=longest_s(draft), distance_bytes=distance_of(draft, most))
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
