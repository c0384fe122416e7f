from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.facts.metrics import find_metric
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import OS_FILE, OsSamples, read_os_samples
from pgdyno.record.samples.series import Sampled, growth

DATA = Path(__file__).parent.parent / "data" / "samples"


@pytest.fixture(params=["pg15", "pg18"])
def samples(request: pytest.FixtureRequest) -> OsSamples:
    return read_os_samples(DATA / request.param)


def write(folder: Path, times: list[float], absent: dict[str, str] | None = None, **sources: list[Any]) -> OsSamples:
    """Samples with the real header, and at each time the values of some sources."""
    header = json.loads((DATA / "pg18" / OS_FILE).read_text().splitlines()[0])
    rows = [
        {"t": t, "cost_s": 0.0, **{key.replace("__", "."): values[i] for key, values in sources.items()}}
        for i, t in enumerate(times)
    ]
    path = folder / OS_FILE
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**header, "absent": absent or {}}, *rows)))
    return read_os_samples(path)


def all_series(samples: OsSamples) -> list[Sampled]:
    return [
        *series.cpu_shares(samples),
        *(function(samples) for function in (
            series.cpu_busy, series.busiest_core, series.steal, series.run_queue, series.blocked,
            series.dirty, series.writeback, series.busiest_thread, series.cgroup_throttled,
        )),
        *(one for resource in ("cpu", "memory", "io") for one in series.pressure(samples, resource)),
        *(one for disk in series.list_disks(samples) for one in series.disk_series(samples, disk).values()),
        *(series.busiest_thread(samples, label) for label in ("sampler_os", "sampler_server", "sampler_backend")),
    ]  # fmt: skip


def test_every_series_is_a_known_metric_within_its_range(samples: OsSamples) -> None:
    assert len(all_series(samples)) > 30
    for one in all_series(samples):
        metric = find_metric(one.metric)
        assert one.unit == metric.unit
        assert one.monotonic_s.shape == one.values.shape
        assert one.absent is None, one
        seen = one.values[~np.isnan(one.values)]
        # What programs use is taken from what the CPUs do, whose ticks are coarser: the difference may be below 0.
        least = -1.0 if one.metric == "cpu_others_ratio" else 0.0
        # A clock tick of rounding at half-second samples is 2 % of a CPU; a thread's own time has no bound.
        most = 1.03 if metric.unit == "ratio" and one.metric != "load_generator_thread_ratio" else np.inf
        assert ((least <= seen) & (seen <= most)).all()
        inside = (one.monotonic_s >= samples.frame["t_s"][0]) & (one.monotonic_s <= samples.frame["t_s"][-1])
        assert inside.all()


def test_shares_of_all_kinds_make_one(samples: OsSamples) -> None:
    total = sum(one.values for one in series.cpu_shares(samples))
    assert total == pytest.approx(np.ones(samples.frame.height - 1))
    parts = {one.label: one.values for one in series.cpu_shares(samples)}
    busy = 1 - parts["idle"] - parts["iowait"] - parts["steal"]
    assert series.cpu_busy(samples).values == pytest.approx(busy)


def test_rates_agree_with_a_slow_and_obvious_reading_of_the_lines(
    samples: OsSamples, request: pytest.FixtureRequest
) -> None:
    version = request.node.callspec.params["samples"]
    _, *lines, _ = [json.loads(line) for line in (DATA / version / OS_FILE).read_text().splitlines()]
    now: dict[str, Any] = {}
    rows = []
    for line in lines:
        now = {**now, **line}
        rows.append(now)
    slow: dict[str, list[float]] = {"busiest": [], "thread": [], "written": [], "psi": []}
    for old, new in itertools.pairwise(rows):
        step = new["t"] - old["t"]
        shares = []
        for cpu in ("cpu0", "cpu1"):
            ticks = [max(b - a, 0) for a, b in zip(old[cpu][:8], new[cpu][:8], strict=True)]
            shares.append(1 - (ticks[3] + ticks[4] + ticks[7]) / sum(ticks))
        slow["busiest"].append(max(shares))
        threads = [key for key in new if key.startswith("thread.load.")]
        known = [key for key in threads if key in old and old[key] and new[key]]
        slow["thread"].append(max((new[k][0] - old[k][0]) / 1e9 / step for k in known) if known else np.nan)
        slow["written"].append((new["disk.vda"][6] - old["disk.vda"][6]) * 512 / step)
        slow["psi"].append((new["psi.io"][1] - old["psi.io"][1]) / 1e6 / step)
    assert series.busiest_core(samples).values == pytest.approx(slow["busiest"])
    assert series.busiest_thread(samples).values == pytest.approx(slow["thread"], nan_ok=True)
    disk = series.disk_series(samples, "vda")
    assert disk["disk_write_bytes_per_s"].values == pytest.approx(slow["written"])
    assert series.pressure(samples, "io")[0].values == pytest.approx(slow["psi"])


def test_true_time_steps_make_the_rates_and_middles_their_times(tmp_path: Path) -> None:
    stalls = [[0, 0, 0, 0], [0, 500_000, 0, 0], [0, 2_000_000, 0, 0]]
    samples = write(tmp_path, [10.0, 11.0, 14.0], sched=[[0, 0, 3, 1], [0, 0, 4, 0], [0, 0, 5, 0]], psi__io=stalls)
    rate, _ = series.pressure(samples, "io")
    assert rate.values.tolist() == [0.5, 0.5]
    assert rate.monotonic_s.tolist() == [10.5, 12.5]
    queue = series.run_queue(samples)
    assert queue.values.tolist() == [3, 4, 5]
    assert queue.monotonic_s.tolist() == [10.0, 11.0, 14.0]


def test_a_counter_that_goes_back_or_away_is_a_hole_and_never_a_number(tmp_path: Path) -> None:
    totals_us = [100_000, 200_000, 50_000, None, 70_000, 95_000]
    stalls = [None if total_us is None else [0, total_us, 0, 0] for total_us in totals_us]
    rate, _ = series.pressure(write(tmp_path, [1, 2, 3, 4, 5, 6], psi__io=stalls), "io")
    assert rate.values == pytest.approx([0.1, np.nan, np.nan, np.nan, 0.025], nan_ok=True)


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**62)), max_size=12))
def test_growth_of_counters_is_to_the_last_digit_what_a_query_of_polars_finds(values: list[int | None]) -> None:
    counter = pl.Series("counter", values, dtype=pl.Int64)
    found = counter.diff().slice(1).cast(pl.Float64).to_numpy().copy()
    found[found < 0] = np.nan
    assert growth(counter).tobytes() == found.tobytes()


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e15)), max_size=12))
def test_growth_of_measured_counters_is_likewise(values: list[float | None]) -> None:
    counter = pl.Series("counter", values, dtype=pl.Float64)
    found = counter.diff().slice(1).to_numpy().copy()
    found[found < 0] = np.nan
    assert np.array_equal(growth(counter), found, equal_nan=True)


def test_one_trial_is_never_answered_with_anothers_shares(tmp_path: Path) -> None:
    made = []
    for name, idle in (("first", 50), ("second", 80)):
        (tmp_path / name).mkdir()
        cpu = {"cpu0": [[0] * 8, [100 - idle, 0, 0, idle, 0, 0, 0, 0]]}
        made.append(write(tmp_path / name, [0.0, 1.0], **cpu))
    assert [series.cpu_busy(each).values.tolist() for each in (*made, *made)] == [[0.5], [pytest.approx(0.2)]] * 2


def test_backends_are_counted_without_the_samplers_own(tmp_path: Path) -> None:
    seen = write(tmp_path, [0.0, 1.0, 3.0])
    ns = {
        "backends.server/run_ns": [0, 1_500_000_000, 1_500_000_000],
        "backends.server/wait_ns": [0, 4_000_000_000, 4_200_000_000],
        "thread.sampler_backend.7/run_ns": [0, 100_000_000, 300_000_000],
        "thread.sampler_backend.7/wait_ns": [0, 0, 0],
    }
    frame = seen.frame.with_columns([pl.Series(name, values) for name, values in ns.items()])
    running, queueing = series.backends_on_cpu(msgspec.structs.replace(seen, frame=frame))
    # The kernel's counts of two programs are of different moments; less than none had no CPU.
    assert running.values.tolist() == pytest.approx([1.4, 0.0])
    assert queueing.values.tolist() == pytest.approx([4.0, 0.1])


def test_backends_whose_times_the_kernel_does_not_count_are_absent(tmp_path: Path) -> None:
    seen = write(tmp_path, [0.0, 1.0])
    names = [
        f"{source}/{kind}_ns" for source in ("backends.server", "thread.sampler_backend.7") for kind in ("run", "wait")
    ]
    frame = seen.frame.with_columns([pl.Series(name, [0, 0]) for name in names])
    uncounted = series.backends_on_cpu(msgspec.structs.replace(seen, frame=frame))
    assert {one.absent for one in uncounted} == {"this kernel does not count how long threads run"}


def test_backends_of_a_record_of_before_were_not_followed(samples: OsSamples) -> None:
    assert {one.absent for one in series.backends_on_cpu(samples)} == {"the sampler followed no backends of the server"}
    assert all(np.isnan(waited).all() for _, waited in series.busy_threads(samples).values())


def test_iowait_may_step_back_by_the_kernels_own_account(tmp_path: Path) -> None:
    ticks = [[0, 0, 0, 0, 50, 0, 0, 0, 0, 0], [60, 0, 0, 40, 49, 0, 0, 0, 0, 0]]
    shares = {one.label: one.values for one in series.cpu_shares(write(tmp_path, [1, 2], cpu0=ticks))}
    assert shares["user"].tolist() == [0.6]
    assert shares["iowait"].tolist() == [0.0]


def test_await_queue_and_utilisation_of_a_disk(tmp_path: Path) -> None:
    #          reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, io ms, weighted, discards..., flushes, ms
    before = [100, 0, 800, 50, 10, 0, 80, 20, 0, 1000, 70, 0, 0, 0, 0, 5, 10]
    after = [300, 0, 2400, 150, 10, 0, 80, 20, 2, 1500, 1070, 0, 0, 0, 0, 25, 50]
    disk = series.disk_series(write(tmp_path, [1.0, 2.0], disk__sda=[before, after]), "sda")
    assert {name: one.values.tolist() for name, one in disk.items() if not np.isnan(one.values).any()} == {
        "disk_read_iops": [200.0],
        "disk_write_iops": [0.0],
        "disk_flush_iops": [20.0],
        "disk_read_bytes_per_s": [819200.0],
        "disk_write_bytes_per_s": [0.0],
        "disk_read_await_ms": [0.5],
        "disk_flush_await_ms": [2.0],
        "disk_queue_count": [1.0],
        "disk_util_ratio": [0.5],
    }
    assert np.isnan(disk["disk_write_await_ms"].values).all()


def test_old_kernels_with_fewer_fields_leave_what_they_lack_absent(tmp_path: Path) -> None:
    rows = [[1, 0, 8, 1, 1, 0, 8, 1, 0, 1, 1], [2, 0, 16, 2, 2, 0, 16, 2, 0, 2, 2]]
    disk = series.disk_series(write(tmp_path, [1.0, 2.0], disk__sda=rows), "sda")
    assert disk["disk_read_iops"].values.tolist() == [1.0]
    assert np.isnan(disk["disk_flush_iops"].values).all()


@pytest.mark.parametrize(
    ("device", "flushes", "rate"),
    [
        ("dm-0", 0, None),
        ("dm-1", 5, 4.0),
        ("md127", 0, None),
        ("bcache0", 0, None),
        ("drbd1", 0, None),
        ("sda", 0, 0.0),
    ],
)
def test_flushes_that_are_not_counted_are_absent(tmp_path: Path, device: str, flushes: int, rate: float | None) -> None:
    rows = [[1] * 15 + [min(1, flushes), 0], [2] * 15 + [flushes, 0]]
    flushed = series.disk_series(write(tmp_path, [1.0, 2.0], **{f"disk__{device}": rows}), device)["disk_flush_iops"]
    if rate is None:
        assert flushed.absent == f"the kernel counts no flushes of {device}, only those of the disks below it"
    else:
        assert flushed.values.tolist() == [rate]


def test_a_source_that_is_not_there_is_absent_with_the_kernels_reason(tmp_path: Path) -> None:
    samples = write(
        tmp_path, [1.0, 2.0], absent={"psi.cpu": "Operation not supported"}, sched=[[1, 0, 1, 0], [2, 0, 1, 0]]
    )
    some, full = series.pressure(samples, "cpu")
    assert some.absent == full.absent == "Operation not supported"
    assert some.values.size == 0
    assert series.busiest_thread(samples).absent == "no process was followed as load"
    assert series.dirty(samples).absent == "this kernel does not report mem/Dirty"


def test_a_single_sample_gives_no_rates_and_says_so(tmp_path: Path) -> None:
    samples = write(tmp_path, [1.0], psi__io=[[0, 1, 0, 0]])
    assert series.pressure(samples, "io")[0].absent == "the OS sampler saw too little"


def test_cpus_that_the_study_may_not_use_are_none_of_it(tmp_path: Path) -> None:
    ticks = {"cpu0": [[0] * 10, [80, 0, 0, 20, *[0] * 6]], "cpu1": [[0] * 10, [0, 0, 0, 100, *[0] * 6]]}
    every = write(tmp_path, [0.0, 1.0], **ticks)
    one = with_cpus(every, 0)
    assert (series.list_cpus(every), series.list_cpus(one)) == (("cpu0", "cpu1"), ("cpu0",))
    assert series.cpu_busy(every).values == pytest.approx([0.4])
    assert series.cpu_busy(one).values == pytest.approx([0.8])


def with_cpus(samples: OsSamples, *cpus: int) -> OsSamples:
    assert samples.header is not None
    return msgspec.structs.replace(samples, header=msgspec.structs.replace(samples.header, cpus=cpus))


def test_cpus_that_a_container_numbers_anew(tmp_path: Path) -> None:
    """As in /proc/stat of LXC, where sched_getaffinity tells the machine's own numbers."""
    ticks = {"cpu0": [[0] * 10, [80, 0, 0, 20, *[0] * 6]], "cpu1": [[0] * 10, [0, 0, 0, 100, *[0] * 6]]}
    samples = write(tmp_path, [0.0, 1.0], **ticks)
    assert series.cpu_busy(with_cpus(samples, 4, 5)).values == pytest.approx([0.4])
    # With a quota of two CPUs on four.
    assert series.cpu_busy(with_cpus(samples, 0, 1, 2, 3)).values == pytest.approx([0.4])
    unknown = with_cpus(samples, 4)
    assert series.list_cpus(unknown) == ()
    said = {one.absent for one in (*series.cpu_shares(unknown), series.cpu_busy(unknown), series.busiest_core(unknown))}
    assert said == {"/proc/stat does not tell which CPUs the study may use"}


@pytest.mark.parametrize(("later_ns", "shares"), [(500_000_000, [0.5]), (0, [])])
def test_threads_are_idle_or_not_counted(tmp_path: Path, later_ns: int, shares: list[float]) -> None:
    samples = write(
        tmp_path,
        [0.0, 1.0],
        process__load=[[7, 10, 0], [7, 60, 0]],
        thread__load__7=[[0, 0], [later_ns, 0]],
        thread__load__8=[[0, 0], [0, 0]],
    )
    busiest = series.busiest_thread(samples)
    assert busiest.values.tolist() == shares
    assert busiest.absent == (None if shares else "this kernel does not count how long threads run")
    assert len(series.busy_threads(samples)) == 2
