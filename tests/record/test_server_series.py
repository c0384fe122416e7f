from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.facts.metrics import find_metric
from pgdyno.record.samples import server_series as series
from pgdyno.record.samples.files import SERVER_FILE, ServerSamples, read_server_samples
from pgdyno.record.samples.series import Sampled

DATA = Path(__file__).parent.parent / "data" / "samples"
VERSIONS = {"pg15": 15, "pg18": 18}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def samples(version: str) -> ServerSamples:
    return read_server_samples(DATA / version)


def lines_of(version: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *lines, _ = [json.loads(line) for line in (DATA / version / SERVER_FILE).read_text().splitlines()]
    return header, lines


def write(
    folder: Path, version: str, waits: list[list[list[Any]]], looks: list[int], **settings: bool
) -> ServerSamples:
    """Samples with a real header and counters, and waits of our own."""
    header, lines = lines_of(version)
    header["settings"] |= settings
    kept = [{**line, "waits": rows, "n": n} for line, rows, n in zip(lines, waits, looks, strict=False)]
    path = folder / SERVER_FILE
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *kept)))
    return read_server_samples(path)


def rate_of(samples: ServerSamples, counter: str) -> Sampled:
    return series.counter_rate(samples, counter, metric=counter)


def all_series(samples: ServerSamples) -> list[Sampled]:
    return [
        series.wal_bytes(samples), series.wal_full_page_images(samples), *series.written_pages(samples),
        *series.wait_classes(samples),
    ]  # fmt: skip


def test_every_series_is_a_known_metric_and_none_is_absent(samples: ServerSamples) -> None:
    for one in all_series(samples):
        assert one.unit == find_metric(one.metric).unit
        assert one.absent is None
        assert one.values.shape == one.monotonic_s.shape == (samples.frame.height - 1,)
        assert (one.values >= 0).all()


def test_hits_agree_with_a_slow_and_obvious_reading_of_the_lines(version: str, samples: ServerSamples) -> None:
    header, lines = lines_of(version)
    hit, read = (header["counters"].index(f"blks_{what}_pages") for what in ("hit", "read"))
    expected = []
    for old, new in itertools.pairwise(lines):
        hits, reads = new["c"][hit] - old["c"][hit], new["c"][read] - old["c"][read]
        expected.append(hits / (hits + reads) if hits + reads else None)
    line = series.cache_hits(samples)
    assert line.absent is None
    assert [None if np.isnan(value) else value for value in line.values.tolist()] == pytest.approx(expected)
    # No access is no share, and neither is the interval of a reset.
    still = {f"counter/blks_{what}_pages": [7, 7, 3, 5] for what in ("hit", "read")}
    frame = samples.frame.head(4).with_columns(**{name: pl.Series(values) for name, values in still.items()})
    values = series.cache_hits(msgspec.structs.replace(samples, frame=frame)).values
    assert np.isnan(values[:2]).all()
    assert values[2] == 0.5
    assert series.cache_hits(msgspec.structs.replace(samples, frame=frame.head(1))).absent


def test_rates_agree_with_a_slow_and_obvious_reading_of_the_lines(version: str, samples: ServerSamples) -> None:
    header, lines = lines_of(version)
    commit, lsn = (header["counters"].index(name) for name in ("xact_commit_count", "wal_insert_lsn_bytes"))
    expected_tps, expected_wal = [], []
    for old, new in itertools.pairwise(lines):
        step = (new["t"] + new["until"] - old["t"] - old["until"]) / 2
        expected_tps.append((new["c"][commit] - old["c"][commit]) / step)
        expected_wal.append((new["c"][lsn] - old["c"][lsn]) / step)
    tps = rate_of(samples, "xact_commit_count")
    assert tps.values == pytest.approx(expected_tps)
    assert series.wal_bytes(samples).values == pytest.approx(expected_wal)
    assert tps.values.max() > 100
    assert series.wal_bytes(samples).values.max() > 100_000


def test_pages_that_backends_wrote_are_found_in_old_and_new_places(version: str, samples: ServerSamples) -> None:
    # 8 MB of shared_buffers below 30 MB of data: backends must write for themselves.
    *_, others = series.written_pages(samples)
    assert others.values.max() > 0
    if VERSIONS[version] < 18:
        return
    header, lines = lines_of(version)
    total: dict[tuple[str, ...], int] = {}
    sums = []
    for line in lines:
        for kind, of, context, *values in line["io"]:
            named = dict(zip(header["io"][3:], values, strict=True))
            if of == "relation" and kind not in {"checkpointer", "background writer"}:
                total[kind, of, context] = (named["io_write_bytes"] or 0) + (named["io_extend_bytes"] or 0)
        sums.append(sum(total.values()))
    steps = np.diff([(line["t"] + line["until"]) / 2 for line in lines])
    assert others.values == pytest.approx(np.diff(sums) / steps)


def test_flushes_of_the_wal_are_counted_in_old_and_new_places(samples: ServerSamples) -> None:
    flushes = rate_of(samples, "wal_sync_count")
    assert flushes.absent is None
    assert flushes.values.max() > 1


def test_making_segments_is_no_flush_of_the_wal(version: str, samples: ServerSamples) -> None:
    """As in pg_stat_wal, where it never was one; pg_stat_io has it since 18."""
    made = pl.Series("io/walwriter/wal/init/io_fsync_count", range(0, 7 * samples.frame.height, 7))
    with_made = msgspec.structs.replace(samples, frame=samples.frame.with_columns(made))
    flushes, others = (rate_of(each, "wal_sync_count").values.tolist() for each in (samples, with_made))
    assert flushes == others


def test_what_a_version_or_a_setting_does_not_count_is_absent_with_the_reason(
    version: str, samples: ServerSamples
) -> None:
    done = rate_of(samples, "checkpoints_done_count")
    assert (done.absent is not None) is (VERSIONS[version] < 18)
    # track_wal_io_timing was off.
    assert rate_of(samples, "wal_sync_ms").absent == "track_wal_io_timing is off"
    assert rate_of(samples, "blk_read_ms").absent is None


def test_waits_are_means_over_looks_by_class(tmp_path: Path) -> None:
    client = "client backend"
    waits = [
        [],
        [
            [client, "active", "IO", "WalSync", 20], [client, "active", "IO", "DataFileRead", 5],
            [client, "active", None, None, 10], [client, "idle", "Client", "ClientRead", 40],
            [client, "idle in transaction", "Client", "ClientRead", 15],
            ["parallel worker", "active", "IPC", "MessageQueueSend", 10],
            ["checkpointer", None, "Timeout", "CheckpointWriteDelay", 10],
            ["walwriter", None, "Activity", "WalWriterMain", 10], ["io worker", None, None, None, 5],
        ],
        [],
    ]  # fmt: skip
    samples = write(tmp_path, "pg18", waits, [1, 10, 0])
    classes = {one.label: one.values for one in series.wait_classes(samples)}
    assert {label: values[0] for label, values in classes.items()} == {
        "IO": 2.5, "CPU": 1.0, "IPC": 1.0, series.IDLE_IN_TRANSACTION: 1.5,
    }  # fmt: skip
    # A second in which nobody looked knows nothing.
    assert all(np.isnan(values[1]) for values in classes.values())


def test_a_state_that_does_not_fit_its_event_goes_by_the_event(tmp_path: Path) -> None:
    rows = [
        ["client backend", "idle", "LWLock", "WALWrite", 1],
        ["client backend", "idle", None, None, 1],
        ["client backend", "active", "Client", "ClientRead", 1],
    ]
    classes = {one.label: one.values[0] for one in series.wait_classes(write(tmp_path, "pg15", [[], rows], [1, 1]))}
    assert classes == {"LWLock": 1.0, "CPU": 1.0, "Client": 1.0}


def test_a_sampler_that_never_began_leaves_all_absent_in_its_words(tmp_path: Path) -> None:
    (tmp_path / SERVER_FILE).write_text('{"t":1.0,"cost_s":0.1,"end":"failed: cannot connect"}\n')
    samples = read_server_samples(tmp_path)
    assert series.wal_bytes(samples).absent == "failed: cannot connect"
    assert [one.absent for one in series.written_pages(samples)] == ["failed: cannot connect"] * 3
    assert series.wait_classes(samples) == ()


def test_what_a_newer_server_does_not_give_is_absent_and_never_0(version: str, samples: ServerSamples) -> None:
    assert samples.header is not None
    header = msgspec.structs.replace(
        samples.header,
        version_num=990000,
        counters=tuple(name for name in samples.header.counters if name != "wal_insert_lsn_bytes"),
        io=tuple(name for name in samples.header.io if name not in {"io_write_bytes", "io_fsync_count"}),
    )
    newer = msgspec.structs.replace(samples, header=header)
    lost = rate_of(newer, "wal_insert_lsn_bytes")
    assert lost.absent is not None
    assert "this PostgreSQL has no pg_current_wal_insert_lsn()" in lost.absent
    assert len(lost.values) == 0
    lost_of_io = rate_of(newer, "wal_sync_count")
    assert lost_of_io.absent is not None
    assert "this PostgreSQL has no pg_stat_io with object = wal" in lost_of_io.absent
    assert series.session_evictions(newer).absent
    *_, others = series.written_pages(newer)
    assert others.absent
    kept = rate_of(newer, "xact_commit_count")
    assert kept.absent is None
    assert np.array_equal(kept.values, rate_of(samples, "xact_commit_count").values)
