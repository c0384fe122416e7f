"""Find what may have caused an episode: each suspect with its figures just before the episode and in it.

A suspect is named only if it fits in time and in size: it changed when throughput did, and by enough to explain at
least half of the change, if that can be computed. All other suspects are kept with the evidence against them, and what
was not sampled is listed. If no suspect fits, the cause is unknown; the next best guess is not named.

Rises have no causes here: a trial that warms up or recovers is reported as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.episodes.before_after import TOLERANCE_S, Contrast, EpisodeSamples, LogSpan
from pgdyno.analyse.episodes.halts import suspect_halt
from pgdyno.analyse.episodes.types import WORSE, Cause, Episode, EpisodeCauses, Suspect
from pgdyno.record.trial_data import TrialData
from pgdyno.units import format_bytes

_MIN_EXPLAINED = 0.5
_MIN_STEAL = 0.03
_MIN_OTHERS = 0.05
_MIN_THROTTLED = 0.25
_FULL_CPU = 0.85
_SLOWER_FACTOR = 1.5
_ALIKE_FACTOR = 1.2
_BUSIER = 0.15
_MORE_FACTOR = 2.0
# Waits of a transaction of pgbench's own scripts, with a wide margin: a flush, pages read, and pages written to make
# room.
_WAITS_PER_TRANSACTION = 10
_REACHED_RATIO = 0.95
# Less than this is on the way to a disk at any moment.
_MIN_WRITEBACK_BYTES = 16e6
# A slow disk moves more than this in a second when memory is short.
_MIN_SWAPPED_BYTES = 4e6
_COVER_RISE = 0.5
_FULL_DISK = 0.9
_FLAT_SPREAD = 0.05
_PLATEAU_FALL = 0.85
_ROUND_RATIO = 0.02
_ROUND = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0)
# A disk whose burst has ended is slower; CPUs that a quota, or writers that the kernel holds up, leave free are used by others.
_ECHOES = ((Cause.CREDITS, Cause.DEVICE), (Cause.QUOTA, Cause.OTHERS), (Cause.DIRTY_LIMIT, Cause.OTHERS))

_Rule = Callable[[EpisodeSamples], Iterator[Suspect]]


def find_causes(
    data: TrialData, episodes: Sequence[Episode], *, device: str | None, wal_device: str | None = None
) -> tuple[EpisodeCauses, ...]:
    """Find the suspects of every episode for the worse.

    Args:
        data: The trial's data.
        episodes: The episodes found in it.
        device: Kernel name of the disk that holds the data.
        wal_device: Kernel name of the disk that holds pg_wal; None if it is that of the data, or unknown.
    """
    return tuple(
        _judge_suspects(
            EpisodeSamples(data, one, device=device),
            None if wal_device is None else EpisodeSamples(data, one, device=wal_device),
        )
        for one in episodes
        if one.kind in WORSE
    )


def _judge_suspects(samples: EpisodeSamples, of_wal: EpisodeSamples | None) -> EpisodeCauses:
    found, absent = _list_suspects(_RULES, samples), samples.absent
    for suspect in () if of_wal is None else _list_suspects(_DISK_RULES, of_wal):
        rival = next((one for one in found if one.cause is suspect.cause), None)
        # Of two disks, the one that explains more is told.
        if rival is None or _rank(suspect) < _rank(rival):
            text = f"on the disk of pg_wal, {suspect.text}"
            found = [
                *(one for one in found if one is not rival),
                msgspec.structs.replace(suspect, text=text, is_of_wal=True),
            ]
    if of_wal is not None and not of_wal.is_disk_seen:
        absent = (*absent, "the disk of pg_wal (it was not sampled)")
    if (halt := suspect_halt(samples.data, samples.episode)) is not None:
        # What comes to light after a halt is no cause. Time that the hypervisor took may be the halt itself.
        found = [halt, *(_deny(one) if halt.fits and one.cause is not Cause.STEAL else one for one in found)]
    return EpisodeCauses(episode=samples.episode, suspects=tuple(sorted(found, key=_rank)), absent=absent)


def _list_suspects(rules: Iterable[_Rule], samples: EpisodeSamples) -> list[Suspect]:
    """List what rules find on one disk, where an effect of another cause that fits is none."""
    found = [suspect for rule in rules for suspect in rule(samples)]
    fitting = {one.cause for one in found if one.fits}
    # The second cause of such a pair is only an effect of the first.
    echoes = {second for first, second in _ECHOES if {first, second} <= fitting}
    return [_deny(one) if one.cause in echoes else one for one in found]


def _deny(suspect: Suspect) -> Suspect:
    return msgspec.structs.replace(suspect, fits=False)


def _rank(one: Suspect) -> tuple[bool, float]:
    """Return what sorts suspects: those that fit first, best first."""
    return not one.fits, -(_MIN_EXPLAINED if one.explained_ratio is None else one.explained_ratio)


def _lost_ratio(episode: Episode) -> float:
    """Return the share of throughput that an episode cost; for a latency, what its rise would cost in a closed loop."""
    change = episode.change_ratio
    return -change if episode.metric == "tps" else change / (1 + change)


def _steal(samples: EpisodeSamples) -> Iterator[Suspect]:
    seen = samples.compare("steal")
    if seen is not None:
        explained = _explain(seen.rise / max(1 - seen.before, 0.01), samples)
        fits = seen.is_apart and seen.rise >= _MIN_STEAL and explained >= _MIN_EXPLAINED
        yield Suspect(cause=Cause.STEAL, fits=fits, text=f"steal {_shares(seen)}", explained_ratio=explained)


def _others(samples: EpisodeSamples) -> Iterator[Suspect]:
    """Check other programs: when they start, more tasks run or wait; those that only take over idle CPUs add none."""
    seen, busy, queue = (samples.compare(name) for name in ("others", "busy", "queue"))
    if seen is None or busy is None or queue is None:
        return
    explained = _explain(seen.rise / max(1 - seen.before, 0.01), samples)
    is_more = seen.is_apart and seen.rise >= _MIN_OTHERS and queue.rise > 0.0
    text = (
        f"other programs {_shares(seen)} of the CPUs, which were {busy.during * 100:.0f} % busy; tasks that ran or waited to"
        f" {queue.before:.1f} to {queue.during:.1f}"
    )
    fits = is_more and busy.during >= _FULL_CPU and explained >= _MIN_EXPLAINED
    yield Suspect(cause=Cause.OTHERS, fits=fits, text=text, explained_ratio=explained)


def _quota(samples: EpisodeSamples) -> Iterator[Suspect]:
    seen = samples.compare("throttled")
    if seen is not None:
        text = f"the CPU quota ran out in {_shares(seen)} of its periods"
        fits = seen.is_apart and seen.rise >= _MIN_THROTTLED
        yield Suspect(cause=Cause.QUOTA, fits=fits, text=text, explained_ratio=max(seen.rise, 0.0))


def _checkpoint(samples: EpisodeSamples) -> Iterator[Suspect]:
    if not samples.has_checkpoints:
        return
    begun, covered = samples.begins_with(samples.checkpoints), samples.cover_ratios(samples.checkpoints)
    is_in_time = covered.rise >= _COVER_RISE or (bool(begun) and not _is_crowded(samples))
    busier = _find_busier(samples)
    text = f"{_describe_spans(begun, samples) or 'no checkpoint began then'}; {busier or 'the disk was no busier'}"
    yield Suspect(cause=Cause.CHECKPOINT, fits=is_in_time and busier is not None, text=text)


def _is_crowded(samples: EpisodeSamples) -> bool:
    """Return whether checkpoints follow each other so closely that one begins near any moment."""
    count = sum(one.from_s >= 0.0 and not one.is_part for one in samples.checkpoints)
    return 4 * TOLERANCE_S * count > samples.length_s


def _full_page_images(samples: EpisodeSamples) -> Iterator[Suspect]:
    images, wal = samples.compare("fpi"), samples.compare("wal")
    if images is None or wal is None or not samples.has_checkpoints:
        return
    # Per transaction, because there were fewer transactions.
    more_wal = wal.factor / max(1 - _lost_ratio(samples.episode), 0.01)
    explained = _explain(1 - 1 / more_wal if more_wal > 0 else 0.0, samples)
    # A page is written in full at its first change after a checkpoint began, so the first seconds have most of them.
    is_in_time = bool(samples.begins_with(samples.checkpoints, lead_s=2 * TOLERANCE_S))
    is_more = images.is_apart and images.factor >= _MORE_FACTOR and wal.factor >= _ALIKE_FACTOR
    fits = is_in_time and is_more and explained >= _MIN_EXPLAINED
    text = f"full-page images {images.before:,.0f} to {images.during:,.0f} a second, WAL {_rates(wal)}"
    yield Suspect(cause=Cause.FULL_PAGE_IMAGES, fits=fits, text=text, explained_ratio=explained)


def _dirty_limit(samples: EpisodeSamples) -> Iterator[Suspect]:
    """Check whether dirty memory reached the middle of the kernel's two thresholds, from where on it throttles writers.

    Source: Linux mm/page-writeback.c, dirty_freerun_ceiling and balance_dirty_pages.
    """
    held, limit, background = (
        samples.compare(name) for name in ("held", "nr_dirty_threshold", "nr_dirty_background_threshold")
    )
    values = samples.values_in("held")
    if held is None or values is None or limit is None or background is None:
        return
    held_bytes = (limit.during + background.during) / 2
    if not held_bytes > 0.0:
        return
    before, reached = held.before / held_bytes, float(np.quantile(values[1], 0.9)) / held_bytes
    fits = before < _REACHED_RATIO <= reached
    text = (
        f"dirty memory and write-back {before * 100:.0f} to {reached * 100:.0f} % of the {format_bytes(round(held_bytes))}"
        " at which the kernel slows writers down"
    )
    yield Suspect(cause=Cause.DIRTY_LIMIT, fits=fits, text=text)


def _write_back(samples: EpisodeSamples) -> Iterator[Suspect]:
    writeback, written = samples.compare("writeback"), samples.compare("disk_write_bytes_per_s")
    dirty, background = samples.compare("dirty"), samples.compare("nr_dirty_background_threshold")
    if writeback is None or written is None or dirty is None:
        return
    busier = _find_busier(samples)
    is_up = writeback.is_apart and written.is_apart and writeback.during >= _MIN_WRITEBACK_BYTES
    is_more = is_up and writeback.factor >= _MORE_FACTOR and written.factor >= _SLOWER_FACTOR
    at = "" if background is None or not background.during > 0.0 else (
        f", dirty memory {dirty.during / background.during * 100:.0f} % of the background threshold"
    )  # fmt: skip
    text = f"write-back {_amounts(writeback)}, written {_rates(written)}{at}; {busier or 'the disk was no busier'}"
    yield Suspect(cause=Cause.WRITEBACK, fits=is_more and busier is not None, text=text)


def _device(samples: EpisodeSamples) -> Iterator[Suspect]:
    """Check whether the disk took longer for no more work."""
    busy = samples.compare("disk_util_ratio")
    waits = {kind: samples.compare(f"disk_{kind}_await_ms") for kind in ("flush", "write", "read")}
    work = [
        samples.compare(name)
        for name in ("disk_write_bytes_per_s", "disk_read_bytes_per_s", "disk_write_iops", "disk_read_iops")
    ]
    known = {kind: seen for kind, seen in waits.items() if seen is not None and np.isfinite(seen.factor)}
    if busy is None or not known:
        return
    kind, slower = max(known.items(), key=lambda item: item[1].factor)
    is_more_work = any(seen is not None and seen.factor > _ALIKE_FACTOR for seen in work)
    explained = _explain(1 - 1 / slower.factor if slower.factor > 0.0 else 0.0, samples)
    is_slower = slower.is_apart and slower.factor >= _SLOWER_FACTOR and _is_enough(slower, samples)
    fits = is_slower and not is_more_work and explained >= _MIN_EXPLAINED
    more = "with more to do" if is_more_work else "with no more to do"
    text = f"a {kind} took {slower.before:.3g} to {slower.during:.3g} ms {more}, the disk was busy {_shares(busy)} of the time"
    yield Suspect(cause=Cause.DEVICE, fits=fits, text=text, explained_ratio=explained)


def _credits(samples: EpisodeSamples) -> Iterator[Suspect]:
    """Check for a flat top that falls to a lower flat top while the disk stays full, as token buckets do when they run dry."""
    busy = samples.compare("disk_util_ratio")
    if busy is None:
        return
    is_full = min(busy.before, busy.during) >= _FULL_DISK
    found: list[tuple[float, str]] = []
    for unit, name, factor in (("IOPS", "disk_iops", 1.0), ("MB/s", "disk_bytes_per_s", 1e-6)):
        values = samples.values_in(name)
        if values is None:
            continue
        before, during = values
        top, level = float(np.mean(before)), float(np.mean(during))
        is_flat = len(during) >= 5 and level > 0.0 and float(np.std(during, ddof=1)) <= _FLAT_SPREAD * level
        if is_full and is_flat and level <= _PLATEAU_FALL * top:
            round_words = ", a round figure as limits are" if _is_round(level * factor) else ""
            text = f"a full disk went from {top * factor:,.0f} to a flat {level * factor:,.0f} {unit}{round_words}"
            found.append((_explain(1 - level / top, samples), text))
    if found:
        explained, text = max(found, key=lambda one: one[0])
        yield Suspect(cause=Cause.CREDITS, fits=explained >= _MIN_EXPLAINED, text=text, explained_ratio=explained)


def _autovacuum(samples: EpisodeSamples) -> Iterator[Suspect]:
    if not samples.data.log:
        return
    begun, covered = samples.begins_with(samples.vacuums), samples.cover_ratios(samples.vacuums)
    busy = samples.compare("busy")
    fuller = busy is not None and busy.is_apart and busy.rise >= _BUSIER
    sign = _find_busier(samples) or (f"CPUs were busy {_shares(busy)}" if busy is not None and fuller else None)
    if begun:
        fits = covered.rise >= _COVER_RISE and sign is not None
        text = f"{_describe_spans(begun, samples)}; {sign or 'neither the disk nor CPUs were busier'}"
        yield Suspect(cause=Cause.AUTOVACUUM, fits=fits, text=text)


def _memory(samples: EpisodeSamples) -> Iterator[Suspect]:
    """Check whether the machine swapped then, or killed a process for want of memory: a kernel without swap counts kills, too."""
    seen, killed = samples.compare("swapped"), samples.begins_with(samples.oom_kills)
    is_swapping = (
        seen is not None and seen.is_apart and seen.during >= _MIN_SWAPPED_BYTES and seen.factor >= _MORE_FACTOR
    )
    told = [_describe_spans(killed, samples)] if killed else []
    told += [] if seen is None else [f"memory swapped {_rates(seen)}"]
    if told:
        text = f"{'; '.join(told)}, by the counters of the whole machine"
        yield Suspect(cause=Cause.MEMORY, fits=is_swapping or bool(killed), text=text)


def _find_busier(samples: EpisodeSamples) -> str | None:
    """Describe how the disk had more to do or took longer, strongest sign first; None if it did not."""
    for kind in ("flush", "write", "read"):
        seen = samples.compare(f"disk_{kind}_await_ms")
        if seen is not None and seen.is_apart and seen.factor >= _SLOWER_FACTOR and _is_enough(seen, samples):
            return f"a {kind} took {seen.before:.3g} to {seen.during:.3g} ms"
    busy = samples.compare("disk_util_ratio")
    if busy is not None and busy.is_apart and busy.rise >= _BUSIER and busy.during >= _FULL_DISK:
        return f"the disk was busy {_shares(busy)} of the time"
    return None


def _is_enough(wait: Contrast, samples: EpisodeSamples) -> bool:
    """Return whether longer waits for the disk can have made transactions slower by this much."""
    one, summary = samples.episode, samples.data.pgbench
    if one.metric != "tps":
        longer_ms = one.after - one.before
    elif summary is not None and summary.client_count is not None and one.before > 0.0:
        # Source: Little's law, in a closed loop. At a scheduled rate clients were idle before, and the rise is even
        # larger.
        until_s = samples.length_s if one.until_s is None else one.until_s
        # No transaction took longer than the episode, even if none completed.
        each_s = min(summary.client_count / max(one.after, 1e-3), until_s - one.from_s)
        longer_ms = 1000 * (each_s - summary.client_count / one.before)
    else:
        return True
    return _WAITS_PER_TRANSACTION * wait.rise >= _MIN_EXPLAINED * longer_ms


def _explain(lost_ratio: float, samples: EpisodeSamples) -> float:
    return min(max(lost_ratio, 0.0) / max(_lost_ratio(samples.episode), 0.01), 1.0)


def _is_round(value: float) -> bool:
    scaled = value / 10 ** math.floor(math.log10(value)) if value > 0 else 0.0
    return any(abs(scaled / one - 1) <= _ROUND_RATIO for one in (*_ROUND, 10.0))


def _describe_spans(spans: Sequence[LogSpan], samples: EpisodeSamples) -> str:
    if not spans:
        return ""
    times = ", ".join(f"{one.from_s:.1f}" for one in spans[:3])
    more = f" and {len(spans) - 3} more" if len(spans) > 3 else ""
    times_of = (
        f"{len(samples.begins_s)} times from {samples.begins_s[0]:.0f}"
        if len(samples.begins_s) > 1
        else f"{samples.begins_s[0]:.0f}"
    )
    return f"{spans[0].what} began at {times}{more} s, the change at {times_of} s"


def _shares(seen: Contrast) -> str:
    return f"{seen.before * 100:.1f} to {seen.during * 100:.1f} %"


def _rates(seen: Contrast) -> str:
    return f"{seen.before / 1e6:,.1f} to {seen.during / 1e6:,.1f} MB/s"


def _amounts(seen: Contrast) -> str:
    return f"{seen.before / 1e6:,.1f} to {seen.during / 1e6:,.1f} MB"


_RULES: tuple[_Rule, ...] = (
    _checkpoint,
    _full_page_images,
    _dirty_limit,
    _write_back,
    _credits,
    _device,
    _autovacuum,
    _steal,
    _quota,
    _others,
    _memory,
)
_DISK_RULES = (_credits, _device)
"""Rules that also look at the disk of pg_wal. What the others name writes to the data's disk."""
