"""Of load hosts and a server whose times of day differ, everything in a trial has its place on one clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import CLOCK_FILE, LOADS_DIR
from pgdyno.record.samples.clock import ClockExchange, append_exchanges
from pgdyno.record.samples.files import read_server_samples
from pgdyno.record.store import open_record
from pgdyno.record.transactions.parse import TransactionBatch
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import TrialRecord
from tests.long_loads import summarise, write_log, write_part

DATA = Path(__file__).parents[1] / "data"
RECORD = DATA / "records" / "v1-pg18"
STDOUT = DATA / "pgbench/18/rate-and-limit/pgbench.stdout"
AHEAD_S = 8.0
SECONDS = 20


def add_load_host(folder: Path, name: str, *, start_s: float, epoch_offset_s: float) -> LoadPart:
    """Write what a load host left whose CLOCK_MONOTONIC is that of the server's machine: 10 transactions of 2 ms a second."""
    place = folder / LOADS_DIR / name
    part = write_part(
        place,
        LoadPart(
            host=name,
            argv=("pgbench",),
            pid=1,
            clients=1,
            threads=1,
            start_far_s=start_s,
            epoch_offset_s=epoch_offset_s,
            release_near_s=start_s,
            end_far_s=start_s + SECONDS,
        ),
    )
    shutil.copy(STDOUT, place / "pgbench.stdout")
    append_exchanges(place / CLOCK_FILE, [ClockExchange(0, start_s, start_s + 0.0001, start_s + 0.0002)])
    count = 10 * SECONDS
    batch = TransactionBatch(
        client=np.zeros(count, dtype=np.int64),
        number=np.arange(count),
        script=np.zeros(count, dtype=np.int64),
        latency_us=np.full(count, 2000),
        outcome=np.zeros(count, dtype=np.uint8),
        stamp_us=round((start_s + epoch_offset_s) * 1e6) + 50_000 + 100_000 * np.arange(count),
    )
    write_log(place, batch, summarise(batch, latency_limit_us=5000))
    return part


def make_trial(folder: Path, *, first: str, second: str, is_first_ahead: bool) -> tuple[Path, TrialRecord]:
    """A trial on a server of pgdyno's own under the load of two hosts, one of which is 8 s ahead in its time of day."""
    shutil.copytree(RECORD / "trials/0001", folder)
    header = read_server_samples(folder).header
    assert header is not None
    right_s = header.wall_s - header.monotonic_s
    offsets_s = (right_s + AHEAD_S * is_first_ahead, right_s + AHEAD_S * (not is_first_ahead))
    record = open_record(RECORD).read_trials()[0]
    start_s = record.load_start_monotonic_s
    assert start_s is not None
    names = zip((first, second), offsets_s, strict=True)
    parts = tuple(add_load_host(folder, name, start_s=start_s, epoch_offset_s=offset_s) for name, offset_s in names)
    return folder, msgspec.structs.replace(
        record,
        planned=msgspec.structs.replace(record.planned, rate_tps=20.0),
        generators=parts,
        clock_offset_s=offsets_s[0],
        load_end_monotonic_s=start_s + SECONDS,
    )


@pytest.mark.parametrize("is_first_ahead", [False, True])
def test_stamps_of_all_are_those_of_the_first_host_of_the_study(tmp_path: Path, is_first_ahead: bool) -> None:
    """By name, the second one comes first."""
    data = read_trial_data(*make_trial(tmp_path / "1", first="load2", second="load10", is_first_ahead=is_first_ahead))
    assert data.transactions is not None
    assert data.load_start_epoch_s is not None
    seconds = data.transactions.series.epoch_s - data.load_start_epoch_s
    assert (seconds[0], seconds[-1]) == (pytest.approx(0.0, abs=1.0), pytest.approx(SECONDS - 1, abs=1.0))
    assert data.transactions.ok_count == 2 * 10 * SECONDS
    assert [one.share_ratio for one in data.schedule_ends] == [0.5, 0.5]
    last_s = [one.last_epoch_s - data.load_start_epoch_s for one in data.schedule_ends]
    assert last_s == pytest.approx([SECONDS - 0.052] * 2, abs=0.01)


@pytest.mark.parametrize("is_first_ahead", [False, True])
def test_the_log_of_the_server_has_the_time_of_day_of_its_own_machine(tmp_path: Path, is_first_ahead: bool) -> None:
    folder, record = make_trial(tmp_path / "1", first="a", second="b", is_first_ahead=is_first_ahead)
    there = [event.origin for event in read_trial_data(folder, record).log]
    alone = [event.origin for event in read_trial_data(folder, msgspec.structs.replace(record, generators=())).log]
    expected_s = AHEAD_S if is_first_ahead else 0.0
    shifts_s = [a.monotonic_s - b.monotonic_s for a, b in zip(there, alone, strict=True) if a and b]
    assert shifts_s
    assert shifts_s == pytest.approx([expected_s] * len(shifts_s))


@pytest.mark.parametrize("name", ["server.parquet", "os.parquet"])
def test_without_samples_of_the_server_those_of_its_machine_have_its_clock(tmp_path: Path, name: str) -> None:
    folder, record = make_trial(tmp_path / "1", first="a", second="b", is_first_ahead=True)
    whole = [event.origin.monotonic_s for event in read_trial_data(folder, record).log if event.origin]
    (folder / name).unlink()
    left = [event.origin.monotonic_s for event in read_trial_data(folder, record).log if event.origin]
    # The two samplers began within half a second of one another, and wrote both clocks down.
    assert left == pytest.approx(whole, abs=0.01)
