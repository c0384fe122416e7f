"""Halts planted in a real record, and near misses that a busy machine or a slow disk makes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.episodes.causes import find_causes
from pgdyno.analyse.episodes.halts import find_halts
from pgdyno.analyse.episodes.types import Cause, EpisodeCauses
from pgdyno.record.samples.pings import Pings
from pgdyno.record.samples.pooler import PoolerSample, PoolerSamples
from pgdyno.record.trial_data import TrialData
from tests.analyse.planted_episodes import AT_S, DEVICE, checkpoint, cliff, cut, grow, pick, read_planted

QUIET = read_planted("quiet")
STALL = cliff(-1.0, at_s=AT_S + 1, until_s=AT_S + 4)
(THREAD,) = [
    name for name in QUIET.os.frame.columns if name.startswith("thread.sampler_os.") and name.endswith("/wait_ns")
]


def judge(data: TrialData) -> EpisodeCauses:
    (causes,) = find_causes(data, [STALL], device=DEVICE)
    return causes


def start_s(data: TrialData) -> float:
    assert data.record.load_start_monotonic_s is not None
    return data.record.load_start_monotonic_s


def test_a_time_without_any_sample_is_a_halt_and_the_only_cause() -> None:
    data = cut(QUIET, "os", "server")
    (halt,) = find_halts(data)
    assert halt.from_s - start_s(data) < AT_S < AT_S + 5 <= halt.to_s - start_s(data)
    # What would fit without it is no cause.
    assert Cause.MEMORY in [one.cause for one in judge(grow(QUIET, "vm/pswpout", 5000)).named]
    causes = judge(grow(data, "vm/pswpout", 5000))
    assert [one.cause for one in causes.named] == [Cause.HALT]
    assert causes.named[0].text.startswith("no sample of any kind was taken for 5.")


def test_time_that_the_hypervisor_took_is_told_beside_it() -> None:
    data = grow(grow(cut(QUIET, "os", "server"), "cpu0/steal", 1000), "cpu1/steal", 1000)
    assert [one.cause for one in judge(data).named] == [Cause.HALT, Cause.STEAL]


def test_a_record_without_a_halt_has_none() -> None:
    for name in ("quiet", "quota", "stop", "dirty"):
        assert find_halts(read_planted(name)) == ()


def test_samples_of_one_sampler_alone_are_no_halt() -> None:
    assert find_halts(cut(QUIET, "os")) == find_halts(cut(QUIET, "server")) == ()
    assert Cause.HALT not in {one.cause for one in judge(cut(QUIET, "os")).suspects}


def test_pings_and_a_pooler_that_answered_meanwhile_deny_a_halt() -> None:
    silent = cut(QUIET, "os", "server")
    times_s = start_s(silent) + np.arange(0.0, 25.0, 0.5)
    pings = Pings(began_s=times_s, round_trip_s=np.full(len(times_s), 0.001))
    pooler = PoolerSamples(version="", samples=tuple(PoolerSample(t_s=one) for one in times_s.tolist()))
    assert find_halts(msgspec.structs.replace(silent, pings=pings)) == ()
    assert find_halts(msgspec.structs.replace(silent, pooler=pooler)) == ()


def test_a_sampler_that_waited_for_a_cpu_was_not_halted() -> None:
    assert find_halts(grow(cut(QUIET, "os", "server"), THREAD, 1e9)) == ()


def test_a_machine_that_waited_for_its_disk_was_not_halted() -> None:
    data = cut(QUIET, "os", "server")
    assert find_halts(grow(data, "psi.io/some_total_us", 1e6)) == ()
    without = msgspec.structs.replace(data.os, frame=data.os.frame.drop("psi.io/some_total_us"))
    data = msgspec.structs.replace(data, os=without)
    assert len(find_halts(data)) == 1
    assert find_halts(grow(data, f"disk.{DEVICE}/io_ms", 1000)) == ()


def test_where_the_kernel_does_not_count_waits_nothing_is_said() -> None:
    data = cut(QUIET, "os", "server")
    for column in (THREAD, THREAD.replace("wait", "run")):
        samples, _ = pick(data, column)
        frame = samples.frame.with_columns(**{column: np.zeros(samples.frame.height, dtype=np.int64)})
        data = msgspec.structs.replace(data, os=msgspec.structs.replace(samples, frame=frame))
    assert find_halts(data) == ()


def test_a_halt_elsewhere_explains_nothing() -> None:
    (causes,) = find_causes(
        checkpoint(cut(QUIET, "os", "server"), "time"), [cliff(-1.0, at_s=4.0, until_s=8.0)], device=DEVICE
    )
    assert Cause.HALT not in {one.cause for one in causes.suspects}
    (causes,) = find_causes(
        cut(QUIET, "os", "server", length_s=3.0), [cliff(-1.0, at_s=4.0, until_s=14.0)], device=DEVICE
    )
    (halt,) = [one for one in causes.suspects if one.cause is Cause.HALT]
    assert not halt.fits
    assert halt.explained_ratio == pytest.approx(0.2, abs=0.12)
