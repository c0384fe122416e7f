from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.episodes.causes import find_causes
from pgdyno.analyse.episodes.detection import find_trial_episodes
from pgdyno.analyse.episodes.types import Cause, Episode, EpisodeCauses, EpisodeKind
from pgdyno.analyse.series import OUT_OF_MEMORY, SWAPPING
from pgdyno.analyse.trial.charts import chart_trial, list_events
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import SettingFact
from tests.analyse.planted_episodes import AT_S, DEVICE, checkpoint, cliff, grow, level, pick, put, read_planted, vacuum

QUIET = read_planted("quiet")
MB = 1_000_000


def look(data: TrialData, episode: Episode | None = None) -> EpisodeCauses:
    (causes,) = find_causes(data, [episode or cliff()], device=DEVICE)
    return causes


def named(causes: EpisodeCauses) -> list[Cause]:
    return [one.cause for one in causes.named]


def busy_disk(data: TrialData) -> TrialData:
    """Writes that take 3 ms, and more of them."""
    data = grow(data, f"disk.{DEVICE}/writes", 2000)
    data = grow(data, f"disk.{DEVICE}/write_ms", 2000 * 3)
    return grow(data, f"disk.{DEVICE}/sectors_written", 800 * MB / 512)


def test_a_real_quota_is_named() -> None:
    data = read_planted("quota")
    course = find_trial_episodes(chart_trial(data, disk=DEVICE), is_mixed=False, is_scheduled=False)
    (episode,) = [one for one in course.episodes if one.metric == "tps"]
    assert episode.kind is EpisodeKind.CLIFF
    assert episode.from_s == pytest.approx(12, abs=2)
    causes = look(data, episode)
    assert named(causes) == [Cause.QUOTA]
    assert "99.0 % of its periods" in causes.named[0].text


def test_at_a_real_limit_of_dirty_memory_others_only_take_over_cpus_that_are_left_idle() -> None:
    data = read_planted("dirty")
    device = "loop2"
    course = find_trial_episodes(chart_trial(data, disk=device), is_mixed=False, is_scheduled=False)
    (episode,) = [one for one in course.episodes if one.metric == "tps"]
    assert episode.kind is EpisodeKind.CLIFF
    assert (episode.from_s, episode.change_ratio) == (pytest.approx(48, abs=2), pytest.approx(-0.52, abs=0.05))
    (causes,) = find_causes(data, [episode], device=device)
    assert named(causes) == [Cause.DIRTY_LIMIT]
    assert "41 to 126 % of the 150 MB at which the kernel slows writers down" in causes.named[0].text
    assert Cause.OTHERS in {one.cause for one in causes.suspects}


def test_of_a_real_stall_that_nothing_sampled_tells_the_cause_is_unknown() -> None:
    data = read_planted("stop")
    course = find_trial_episodes(chart_trial(data, disk=DEVICE), is_mixed=False, is_scheduled=False)
    (episode,) = [one for one in course.episodes if one.kind is EpisodeKind.STALL]
    assert episode.until_s is not None
    assert episode.until_s - episode.from_s == pytest.approx(4, abs=1)
    causes = look(data, episode)
    assert named(causes) == []
    assert {Cause.CHECKPOINT, Cause.STEAL, Cause.OTHERS, Cause.DIRTY_LIMIT} <= {one.cause for one in causes.suspects}


def test_a_quiet_record_has_rarely_a_cause_for_what_never_was() -> None:
    imagined = [
        cliff(size, at_s=at, until_s=end)
        for at in np.arange(5, 20, 0.5)
        for size, end in ((-0.4, None), (-0.95, at + 3))
    ]
    found = find_causes(QUIET, imagined, device=DEVICE)
    assert sum(bool(one.named) for one in found) <= 0.05 * len(found)


@pytest.mark.parametrize(("reason", "words"), [("time", "a timed checkpoint"), ("wal", "WAL volume asked for")])
def test_a_checkpoint_is_named_when_the_disk_shows_it(reason: str, words: str) -> None:
    causes = look(checkpoint(busy_disk(QUIET), reason))
    assert Cause.CHECKPOINT in named(causes)
    assert words in next(one.text for one in causes.named if one.cause is Cause.CHECKPOINT)


def test_a_checkpoint_that_leaves_the_disk_alone_or_begins_elsewhere_is_not() -> None:
    assert named(look(checkpoint(QUIET, "time"))) == []
    assert Cause.CHECKPOINT not in named(look(checkpoint(busy_disk(QUIET), "time", at_s=4.0)))


def test_the_sync_of_a_checkpoint_counts_by_itself() -> None:
    data = checkpoint(busy_disk(QUIET), "time", at_s=4.0, length_s=10.0, sync_s=2.0)
    assert "the sync of a timed checkpoint (checkpoint_timeout) began at 12.0 s" in look(data).named[0].text


def test_of_a_cycle_most_times_must_have_their_checkpoint() -> None:
    saw = msgspec.structs.replace(cliff(at_s=4.0), kind=EpisodeKind.SAWTOOTH, period_s=8.0, recovery_s=3.0)
    data = QUIET
    for column in ("write_ms", "writes", "sectors_written"):
        _, t_s = pick(data, f"disk.{DEVICE}/{column}")
        low_s = np.cumsum(np.where((t_s - 4.0) % 8.0 < 3.0, 1.0, 0.0) * np.diff(t_s, prepend=t_s[0]))
        data = put(
            data, f"disk.{DEVICE}/{column}", np.round(1e9 + 1e4 * t_s + low_s * (4e5 if column == "write_ms" else 1e4))
        )
    one = checkpoint(data, "wal", at_s=4.0, length_s=2.0)
    assert Cause.CHECKPOINT not in named(look(one, saw))
    for at_s in (12.0, 20.0):
        one = checkpoint(one, "wal", at_s=at_s, length_s=2.0)
    causes = look(one, saw)
    assert Cause.CHECKPOINT in named(causes)
    assert "began at 4.0, 12.0, 20.0 s, the change at 3 times from 4 s" in next(
        found.text for found in causes.named if found.cause is Cause.CHECKPOINT
    )


def test_full_page_images_are_named_when_wal_grows_with_them() -> None:
    data = grow(grow(QUIET, "counter/wal_fpi_count", 4000), "counter/wal_insert_lsn_bytes", 4000 * 8192)
    assert named(look(checkpoint(data, "wal"))) == [Cause.FULL_PAGE_IMAGES]
    assert named(look(data)) == []


def test_the_limit_for_dirty_memory_is_named_when_it_is_reached_then() -> None:
    pages = 25_600
    data = level(
        level(QUIET, "vm/nr_dirty_threshold", 2 * pages, 2 * pages), "vm/nr_dirty_background_threshold", pages, pages
    )
    limit_kb = 1.5 * pages * 4
    held = level(level(data, "mem/Writeback", 0, 0), "mem/Dirty", 0.4 * limit_kb, 0.99 * limit_kb)
    assert named(look(held)) == [Cause.DIRTY_LIMIT]
    always = level(level(data, "mem/Writeback", 0, 0), "mem/Dirty", 0.99 * limit_kb, 0.99 * limit_kb)
    assert named(look(always)) == []


def with_full_disk(writes: tuple[int, int], kb: tuple[int, int] = (0, 0)) -> TrialData:
    """A disk that is always busy, with writes of 1 ms before and of 3 ms then, a second and in kB/s."""
    data = QUIET
    for column, before, during in (
        ("writes", *writes),
        ("write_ms", writes[0], 3 * writes[1]),
        ("sectors_written", 2 * kb[0], 2 * kb[1]),
        ("io_ms", 1000, 1000),
    ):
        data = grow(data, f"disk.{DEVICE}/{column}", during, instead=True, before_per_s=before)
    for column in ("reads", "sectors_read", "read_ms", "flushes", "flush_ms"):
        data = grow(data, f"disk.{DEVICE}/{column}", 0, instead=True)
    return data


def test_a_full_disk_that_falls_to_a_flat_round_figure_has_used_up_its_burst() -> None:
    causes = look(with_full_disk((6100, 3000)), cliff(-0.5))
    assert named(causes) == [Cause.CREDITS]
    assert "a flat 3,000 IOPS, a round figure" in causes.named[0].text


def test_a_burst_that_ended_must_explain_what_was_lost() -> None:
    causes = look(with_full_disk((1000, 800)), cliff(-0.9))
    # That the disk became slower is not hidden behind it either.
    assert named(causes) == [Cause.DEVICE]
    (burst,) = [one for one in causes.suspects if one.cause is Cause.CREDITS]
    assert burst.explained_ratio == pytest.approx(0.2 / 0.9, abs=0.02)
    # Of two limits, the one counts that explains more.
    (moved,) = look(with_full_disk((1000, 800), kb=(100_000, 20_000)), cliff(-0.9)).named
    assert (moved.cause, "a flat 20 MB/s" in moved.text) == (Cause.CREDITS, True)


def test_a_disk_that_takes_longer_for_no_more_work_became_slower() -> None:
    data = QUIET
    for column, before, during in (("writes", 3000, 3000), ("write_ms", 300, 6000)):
        data = grow(data, f"disk.{DEVICE}/{column}", during, instead=True, before_per_s=before)
    for column in ("reads", "sectors_read", "sectors_written"):
        data = grow(data, f"disk.{DEVICE}/{column}", 0, instead=True)
    assert named(look(data)) == [Cause.DEVICE]
    more = grow(data, f"disk.{DEVICE}/writes", 1500)
    assert named(look(more)) == []


_Course = dict[str, tuple[int, int]]
SLOWER: _Course = {"writes": (3000, 3000), "write_ms": (300, 6000)}
HARDLY_SLOWER: _Course = {"writes": (3000, 3000), "write_ms": (3000, 4200)}
FASTER: _Course = {"writes": (3000, 3000), "write_ms": (3000, 2900)}
BURST_ENDED: _Course = {"writes": (6100, 2500), "write_ms": (6100, 7500), "io_ms": (1000, 1000)}


def with_two_disks(of_data: _Course | None, of_wal: _Course) -> TrialData:
    """Data and pg_wal on disks of their own; without a course, that of the data does what it did."""
    assert QUIET.os is not None
    columns = [one for one in QUIET.os.frame.columns if one.startswith(f"disk.{DEVICE}/")]
    frame = QUIET.os.frame.with_columns(QUIET.os.frame[one].alias(one.replace(DEVICE, "vdb")) for one in columns)
    data = msgspec.structs.replace(QUIET, os=msgspec.structs.replace(QUIET.os, frame=frame))
    idle = dict.fromkeys(("reads", "sectors_read", "read_ms", "sectors_written", "flushes", "flush_ms"), (0, 0))
    for device, course in ((DEVICE, of_data), ("vdb", of_wal)):
        for column, (before, during) in {} if course is None else {**idle, "io_ms": (500, 500), **course}.items():
            data = grow(data, f"disk.{device}/{column}", during, instead=True, before_per_s=before)
    return data


def test_of_the_disks_of_data_and_of_wal_the_one_that_became_slower_is_named() -> None:
    data = with_two_disks(None, SLOWER)
    assert named(look(data)) == []
    (causes,) = find_causes(data, [cliff()], device=DEVICE, wal_device="vdb")
    assert named(causes) == [Cause.DEVICE]
    assert causes.named[0].text.startswith("on the disk of pg_wal, a write took 0.1 to 2 ms")
    (unseen,) = find_causes(data, [cliff()], device=DEVICE, wal_device="vdc")
    assert (named(unseen), unseen.absent) == ([], ("the disk of pg_wal (it was not sampled)",))


@pytest.mark.parametrize(
    ("of_data", "of_wal", "told"),
    [
        # That a disk became slower is no effect of a burst that ended on the other.
        (BURST_ENDED, SLOWER, {(Cause.CREDITS, True, False), (Cause.DEVICE, True, True)}),
        (SLOWER, BURST_ENDED, {(Cause.CREDITS, True, True), (Cause.DEVICE, True, False)}),
        (BURST_ENDED, HARDLY_SLOWER, {(Cause.CREDITS, True, False), (Cause.DEVICE, False, False)}),
        # Of two that do not fit, the one that explains more is told.
        (HARDLY_SLOWER, FASTER, {(Cause.DEVICE, False, False)}),
        (FASTER, HARDLY_SLOWER, {(Cause.DEVICE, False, True)}),
    ],
)
def test_each_disk_is_judged_by_itself(of_data: _Course, of_wal: _Course, told: set[tuple[Cause, bool, bool]]) -> None:
    (causes,) = find_causes(with_two_disks(of_data, of_wal), [cliff(-0.9)], device=DEVICE, wal_device="vdb")
    seen = [one for one in causes.suspects if one.cause in {Cause.CREDITS, Cause.DEVICE}]
    assert {(one.cause, one.fits, one.is_of_wal) for one in seen} == told
    assert all(one.is_of_wal is one.text.startswith("on the disk of pg_wal, ") for one in seen)


@pytest.mark.parametrize(("each_ms", "causes"), [(600, [Cause.DEVICE]), (100, [])])
def test_a_stall_in_which_nothing_is_done_takes_waits_that_fill_it(each_ms: int, causes: list[Cause]) -> None:
    data = QUIET
    for column, before, during in (("writes", 3000, 1), ("write_ms", 300, each_ms)):
        data = grow(data, f"disk.{DEVICE}/{column}", during, instead=True, before_per_s=before)
    for column in ("reads", "sectors_read", "sectors_written"):
        data = grow(data, f"disk.{DEVICE}/{column}", 0, instead=True)
    assert named(look(data, cliff(-1.0, until_s=AT_S + 4.0))) == causes


def test_time_that_was_taken_must_explain_what_was_lost() -> None:
    stolen = QUIET
    for cpu in ("cpu0", "cpu1"):
        stolen = grow(stolen, f"{cpu}/steal", 60)
    assert named(look(stolen)) == [Cause.STEAL]
    # Three of a hundred are no reason for a loss of four fifths.
    barely = grow(QUIET, "cpu0/steal", 6)
    assert named(look(barely, cliff(-0.8))) == []


def test_autovacuum_is_named_when_it_begins_then_and_the_disk_shows_it() -> None:
    assert named(look(vacuum(QUIET))) == []
    assert Cause.AUTOVACUUM in named(look(vacuum(busy_disk(QUIET))))


@pytest.mark.parametrize(
    ("column", "per_s", "words"),
    [
        ("vm/pswpin", 5000, "memory swapped 0.0 to 20.5 MB/s"),
        ("vm/oom_kill", 1, "a kill by the kernel for want of memory began at 12."),
        ("vm/pswpin", 100, None),
    ],
)
def test_swapping_and_killed_processes_are_named(column: str, per_s: int, words: str | None) -> None:
    data = QUIET
    for name in ("vm/pswpin", "vm/pswpout", "vm/oom_kill"):
        data = grow(data, name, per_s if name == column else 0, instead=True)
    causes = look(data)
    assert named(causes) == ([] if words is None else [Cause.MEMORY])
    assert words is None or words in causes.named[0].text
    kind = OUT_OF_MEMORY if column == "vm/oom_kill" else SWAPPING
    seen = [event for event in list_events(data) if event.kind == kind]
    assert bool(seen) is (words is not None)
    assert not [event for event in list_events(QUIET) if event.kind in {SWAPPING, OUT_OF_MEMORY}]


def test_processes_are_killed_on_a_kernel_without_swap_too() -> None:
    data = grow(QUIET, "vm/oom_kill", 1, instead=True)
    assert data.os is not None
    frame = data.os.frame.drop("vm/pswpin", "vm/pswpout")
    causes = look(msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=frame)))
    assert named(causes) == [Cause.MEMORY]
    assert causes.named[0].text.endswith("the change at 12 s, by the counters of the whole machine")


def test_what_was_not_sampled_is_said() -> None:
    bare = msgspec.structs.replace(QUIET, os=None, server=None, log=())
    causes = look(bare)
    assert causes.suspects == ()
    assert [one.partition(" (")[0] for one in causes.absent] == [
        "CPUs, memory and disk of the system",
        "WAL and writes of the server",
        "checkpoints and autovacuum",
    ]
    (without,) = find_causes(QUIET, [cliff()], device=None)
    assert any("the disk" in one for one in without.absent)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("log_checkpoints", "off", "checkpoints (log_checkpoints was off)"),
        ("log_autovacuum_min_duration", "10000", "automatic vacuums of less than 10 s (log_autovacuum_min_duration)"),
        ("log_autovacuum_min_duration", None, "automatic vacuums of less than 600 s (log_autovacuum_min_duration)"),
        ("log_autovacuum_min_duration", "-1", "autovacuum (log_autovacuum_min_duration was -1)"),
    ],
)
def test_what_the_server_was_told_not_to_log_is_said(name: str, value: str | None, words: str) -> None:
    others = tuple(one for one in QUIET.record.settings if one.name != name)
    # Only what is not as built in is recorded.
    own = () if value is None else (SettingFact(name=name, value=value, unit=None, boot_value=None, source="file"),)
    record = msgspec.structs.replace(QUIET.record, settings=(*others, *own))
    causes = look(msgspec.structs.replace(checkpoint(busy_disk(QUIET), "time"), record=record))
    assert words in causes.absent
    is_seen = name != "log_checkpoints"
    assert (Cause.CHECKPOINT in {one.cause for one in causes.suspects}) is is_seen
    assert look(QUIET).absent == ()


def test_a_trial_cut_short_in_its_samples_names_nothing() -> None:
    assert QUIET.os is not None
    begin_s = QUIET.record.load_start_monotonic_s or 0.0
    short = QUIET.os.frame.filter(QUIET.os.frame["t_s"] < begin_s + AT_S - 1)
    assert named(look(msgspec.structs.replace(QUIET, os=msgspec.structs.replace(QUIET.os, frame=short)))) == []
    unended = msgspec.structs.replace(QUIET.record, load_end_monotonic_s=None)
    assert named(look(msgspec.structs.replace(QUIET, record=unended))) == []


def test_rises_have_no_causes() -> None:
    warm = msgspec.structs.replace(cliff(), kind=EpisodeKind.WARM_UP)
    assert find_causes(QUIET, [warm], device=DEVICE) == ()
