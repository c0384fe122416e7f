from __future__ import annotations

import errno
import os
import random
import re
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.record.transactions import pack as txpack
from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.pack import TransactionPacker, read_packed, read_summary, write_summary
from pgdyno.record.transactions.parse import LineCutter, LogColumns, TransactionBatch, TransactionOutcome, parse_block
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from tests.examples import TIMES
from tests.rows import each_row
from tests.transactions import pack_transactions, read_log, summarise_logs, summarise_packed

DATA = Path(__file__).parent.parent / "data" / "txlog"
CASES = {
    "plain": LogColumns.PLAIN,
    "scripts": LogColumns.PLAIN,
    "rate": LogColumns.LAG,
    "limit": LogColumns.LAG,
    "failed": LogColumns.PLAIN,
    "retries": LogColumns.RETRIES,
    "detailed": LogColumns.RETRIES,
    "all": LogColumns.LAG_AND_RETRIES,
    "sampled": LogColumns.PLAIN,
}
LIMITS_US = {"limit": 700, "all": 5000}
every_log = pytest.mark.parametrize("case", CASES)
both_versions = pytest.mark.parametrize("version", ["15", "18"])


def logs_of(case: str, version: str) -> list[Path]:
    return sorted((DATA / version).glob(f"{case}.log*"))


def said_by_pgbench(case: str, version: str, pattern: str) -> list[int]:
    return [int(found) for found in re.findall(pattern, (DATA / version / f"{case}.out").read_text(), re.MULTILINE)]


def rows_of(batch: TransactionBatch) -> list[tuple[object, ...]]:
    """A batch as the obvious parser below gives it."""
    columns = [getattr(batch, name) for name in TransactionBatch.__struct_fields__]
    return list(zip(*(c.tolist() if c is not None else [None] * len(batch) for c in columns), strict=True))


def slow_rows(text: bytes, columns: LogColumns) -> list[tuple[object, ...]]:
    words = {"failed", "serialization", "deadlock", "skipped"}
    rows = []
    for line in text.decode().splitlines():
        got = dict(zip(columns.fields, line.split(), strict=True))
        outcome = TransactionOutcome[got["latency_us"].upper()] if got["latency_us"] in words else TransactionOutcome.OK
        latency = int(got["latency_us"]) if outcome == TransactionOutcome.OK else 0
        stamp = int(got["epoch_s"]) * 1_000_000 + int(got["us"])
        lag, retries = (int(got[name]) if name in got else None for name in ("lag_us", "retries"))
        rows.append((int(got["client"]), int(got["number"]), latency, outcome, int(got["script"]), stamp, lag, retries))
    return rows


@both_versions
@every_log
def test_every_column_of_real_logs_is_as_an_obvious_parser_reads_it(case: str, version: str) -> None:
    for path in logs_of(case, version):
        text = path.read_bytes()
        parsed = parse_block(text, CASES[case])
        assert parsed.malformed_count == 0
        assert rows_of(parsed.batch) == slow_rows(text, CASES[case])


@both_versions
@every_log
def test_counts_are_those_pgbench_prints(case: str, version: str) -> None:
    summary = summarise_logs(logs_of(case, version), columns=CASES[case], latency_limit_us=LIMITS_US.get(case))
    processed = said_by_pgbench(case, version, r"^number of transactions actually processed: (\d+)")[0]
    if case == "sampled":
        assert summary.ok_count == pytest.approx(0.01 * processed, rel=0.15)
        return
    assert summary.ok_count == processed
    assert [summary.failed_count] == said_by_pgbench(case, version, r"^number of failed transactions: (\d+)")
    assert [summary.skipped_count] == (said_by_pgbench(case, version, r"^number of transactions skipped: (\d+)") or [0])
    if case in LIMITS_US:
        late = said_by_pgbench(case, version, r"^number of transactions above the .* limit: (\d+)")
        assert [sum(script.late_count or 0 for script in summary.scripts)] == late
    if "retries" in CASES[case].fields:
        assert [summary.retried_count] == said_by_pgbench(case, version, r"^number of transactions retried: (\d+)")
        assert [summary.retries_count] == said_by_pgbench(case, version, r"^total number of retries: (\d+)")
    else:
        assert summary.retries_count is None


@both_versions
@pytest.mark.parametrize("case", ["detailed", "all"])
def test_kinds_of_failures_are_those_pgbench_prints_for_each_script(case: str, version: str) -> None:
    scripts = summarise_logs(logs_of(case, version), columns=CASES[case]).scripts
    assert [s.script for s in scripts] == [0, 1]
    for kind, seen in (
        ("serialization", [s.serialization_count for s in scripts]),
        ("deadlock", [s.deadlock_count for s in scripts]),
    ):
        assert seen == said_by_pgbench(case, version, rf"^ - number of {kind} failures: (\d+)")
        assert [sum(seen)] == said_by_pgbench(case, version, rf"^number of {kind} failures: (\d+)")
    assert all(s.late_count is None for s in scripts)


@both_versions
@every_log
def test_histograms_of_scripts_and_seconds_hold_the_same_transactions(case: str, version: str) -> None:
    summary = summarise_logs(logs_of(case, version), columns=CASES[case])
    batches = [parse_block(path.read_bytes(), CASES[case]).batch for path in logs_of(case, version)]
    expected = LatencyHistogram()
    for batch in batches:
        expected.add(batch.latency_us[batch.outcome == TransactionOutcome.OK])
    assert summary.latency() == expected
    assert summary.window(0, 1 << 40) == expected
    stamps = np.concatenate([batch.stamp_us for batch in batches])
    assert (summary.first_stamp_us, summary.last_stamp_us) == (stamps.min(), stamps.max())


@both_versions
@every_log
def test_packed_form_gives_the_same_rows_and_the_same_summary(case: str, version: str, tmp_path: Path) -> None:
    settings_ = {"columns": CASES[case], "latency_limit_us": LIMITS_US.get(case)}
    summary, packed = pack_transactions(logs_of(case, version), tmp_path / "t", **settings_)
    assert summary == summarise_logs(logs_of(case, version), **settings_)
    assert summarise_packed(tmp_path / "t", **settings_) == summary
    text = b"".join(path.read_bytes() for path in logs_of(case, version))
    rows = [row for batch in read_packed(tmp_path / "t") for row in rows_of(batch)]
    assert sorted(rows, key=str) == sorted(slow_rows(text, CASES[case]), key=str)
    assert packed.transactions_count == len(rows)
    assert packed.size_bytes == sum(path.stat().st_size for path in (tmp_path / "t").iterdir())


def test_parts_are_cut_and_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txpack, "PART_ROWS", 100)
    path = DATA / "18" / "all.log"
    tally = TransactionTally(columns=LogColumns.LAG_AND_RETRIES)
    packer = TransactionPacker(tmp_path)
    for lines in np.array_split(np.array(path.read_bytes().splitlines(keepends=True)), 12):
        parsed = parse_block(b"".join(lines.tolist()), LogColumns.LAG_AND_RETRIES)
        tally.add_block(parsed)
        packer.add(parsed.batch)
    packer.close()
    assert len(list(tmp_path.glob("part-*"))) == 3
    assert summarise_packed(tmp_path, columns=LogColumns.LAG_AND_RETRIES) == tally.summary()
    assert not list(tmp_path.glob("*.tmp"))


def test_packed_transactions_are_never_overwritten(tmp_path: Path) -> None:
    pack_transactions(logs_of("plain", "18"), tmp_path, columns=LogColumns.PLAIN)
    with pytest.raises(FileExistsError):
        TransactionPacker(tmp_path)


def test_missing_and_foreign_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_packed(tmp_path))
    (tmp_path / "part-00000.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"part-00000\.parquet is not a part"):
        list(read_packed(tmp_path))


def test_summary_survives_its_file(tmp_path: Path) -> None:
    summary = summarise_logs(logs_of("all", "15"), columns=LogColumns.LAG_AND_RETRIES, latency_limit_us=5000)
    write_summary(tmp_path, summary)
    assert read_summary(tmp_path) == summary
    newer = msgspec.structs.replace(summary, version=summary.version + 1)
    write_summary(tmp_path, newer)
    with pytest.raises(ValueError, match="this pgdyno knows up to"):
        read_summary(tmp_path)


def test_cut_last_line_is_counted_and_not_read(tmp_path: Path) -> None:
    whole = logs_of("plain", "18")[0].read_bytes()
    path = tmp_path / "cut.log"
    path.write_bytes(whole[:-5])
    summary = summarise_logs([path], columns=LogColumns.PLAIN)
    assert (summary.ok_count, summary.cut_lines_count, summary.malformed_lines_count) == (119, 1, 0)


def test_malformed_lines_are_counted_and_the_first_is_kept(tmp_path: Path) -> None:
    lines = logs_of("all", "18")[0].read_bytes().splitlines(keepends=True)
    count = len(lines)
    lines[10] = b"0 7 12\xff4 0 1795231027 5 1 0\n"
    lines.insert(50, b"\n")
    path = tmp_path / "bad.log"
    path.write_bytes(b"".join(lines))
    summary = summarise_logs([path], columns=LogColumns.LAG_AND_RETRIES)
    assert summary.malformed_lines_count == 2
    assert summary.first_malformed_line == "0 7 12\\xff4 0 1795231027 5 1 0"
    assert sum(s.ok_count for s in summary.scripts) + summary.failed_count + summary.skipped_count == count - 1


GOOD = b"0 1 1342 0 1795231027 972349\n"


@each_row(
    [
        b"0 1 1342 0 1795231027\n",
        b"0 1 1342 0 1795231027 972349 5\n",
        b"0 1 -1342 0 1795231027 972349\n",
        b"0 1 1342.5 0 1795231027 972349\n",
        b"0 1  0 1795231027 972349\n",
        b"0 1 13421 1 1342 0 1795231027 972349\n",
        b"0 1 1342 0 179523102 972349\n",
        b"0 1 1342 0 1795231027 9723490\n",
        b"0 1 1234567890123 0 1795231027 972349\n",
        b"0 1 skipper 0 1795231027 972349\n",
        b"0 1 serialisation 0 1795231027 972349\n",
        b"0 1 deadlocks 0 1795231027 972349\n",
        b"0 1 xfailed 0 1795231027 972349\n",
        b"0 1 FAILED 0 1795231027 972349\n",
        b"0 skipped 1 0 1795231027 972349\n",
        b"0 1 1342 0 skipped 972349\n",
        b"0 1 1342 0 1795231027\t972349\n",
        b"0 1 1342 0 1795231027 972349 \n",
        b"\n",
        b"Segmentation fault\n",
    ]
)
def test_line_that_is_not_of_the_form_is_left_out_alone(line: bytes) -> None:
    parsed = parse_block(GOOD + line + GOOD, LogColumns.PLAIN)
    assert (len(parsed.batch), parsed.malformed_count) == (2, 1)
    assert parsed.first_malformed == line.rstrip(b"\n")


def test_log_with_other_columns_than_asked_for_is_all_malformed() -> None:
    text = logs_of("rate", "18")[0].read_bytes()
    parsed = parse_block(text, LogColumns.PLAIN)
    assert (len(parsed.batch), parsed.malformed_count) == (0, 120)


transactions = st.tuples(
    st.integers(0, 999_999_999),
    st.integers(0, 10**16 - 1),
    st.integers(0, 10**12 - 1) | st.sampled_from(["failed", "serialization", "deadlock", "skipped"]),
    st.integers(0, 9999),
    st.integers(10**9, 10**10 - 1),
    st.integers(0, 999_999),
    st.integers(0, 10**12 - 1),
    st.integers(0, 999_999_999),
)


@given(st.lists(transactions, max_size=30), st.sampled_from(LogColumns))
def test_any_log_is_read_as_an_obvious_parser_reads_it(rows: list[tuple[object, ...]], columns: LogColumns) -> None:
    order = dict(zip(LogColumns.LAG_AND_RETRIES.fields, range(8), strict=True))
    text = "".join(" ".join(str(row[order[name]]) for name in columns.fields) + "\n" for row in rows).encode()
    parsed = parse_block(text, columns)
    assert parsed.malformed_count == 0
    assert rows_of(parsed.batch) == slow_rows(text, columns)


@given(st.binary(max_size=300))
@settings(max_examples=200 * TIMES)
def test_no_bytes_break_the_parser_or_harm_their_neighbours(noise: bytes) -> None:
    text = GOOD + noise + b"\n" + GOOD
    parsed = parse_block(text, LogColumns.PLAIN)
    assert len(parsed.batch) + parsed.malformed_count == text.count(b"\n")
    assert rows_of(parsed.batch)[0] == rows_of(parsed.batch)[-1] == slow_rows(GOOD, LogColumns.PLAIN)[0]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60))
def test_cutting_the_stream_anywhere_changes_nothing(sizes: list[int]) -> None:
    text = logs_of("plain", "18")[0].read_bytes()
    cutter, pieces, at = LineCutter(), [], 0
    for size in sizes:
        pieces.append(cutter.feed(text[at : at + size]))
        at += size
    assert b"".join(pieces) + cutter.rest == text[:at]
    assert all(not piece or piece.endswith(b"\n") for piece in pieces)
    assert b"\n" not in cutter.rest


def test_file_that_is_no_log_cannot_fill_the_memory() -> None:
    cutter = LineCutter()
    for _ in range(100):
        cutter.feed(b"\0" * 100_000)
        assert len(cutter.rest) <= 4096


def batch_at(seconds: np.ndarray, latency_us: np.ndarray) -> TransactionBatch:
    zeros = np.zeros(len(seconds), dtype=np.int64)
    return TransactionBatch(
        client=zeros,
        number=np.arange(len(seconds)),
        latency_us=latency_us,
        outcome=zeros.astype(np.uint8),
        script=zeros,
        stamp_us=(1_700_000_000 + seconds) * 1_000_000 + np.arange(len(seconds)),
    )


def summary_of(batches: list[TransactionBatch], **settings_: object) -> TransactionSummary:
    tally = TransactionTally(columns=LogColumns.PLAIN, **settings_)  # type: ignore[arg-type]
    for batch in batches:
        tally.add(batch)
    return tally.summary()


def test_seconds_may_come_in_any_order_and_again_after_they_were_closed() -> None:
    random_ = np.random.default_rng(5)
    seconds = np.repeat(np.arange(300), 40)
    latency = random_.integers(1, 100_000, len(seconds))
    batches = [batch_at(part, lat) for part, lat in zip(np.split(seconds, 60), np.split(latency, 60), strict=True)]
    expected = summary_of(batches, latency_limit_us=50_000)
    assert len(expected.seconds) == 300
    shuffled = [batch for index in range(2) for batch in batches[index::2]]
    random.Random(3).shuffle(shuffled)
    # A batch's own stamps start anew, so only what does not hang on the microsecond is compared.
    found = summary_of(shuffled, latency_limit_us=50_000)
    assert found.seconds == expected.seconds
    assert found.scripts == expected.scripts


def test_series_has_every_second_and_zero_is_not_missing() -> None:
    seconds = np.repeat([0, 1, 4], [1000, 2000, 500])
    series = summary_of([batch_at(seconds, np.full(len(seconds), 200))]).series
    assert series.epoch_s.tolist() == [1_700_000_000 + s for s in range(5)]
    assert series.tps.tolist() == [1000, 2000, 0, 0, 500]
    assert series.p50_us[:2].tolist() == [200, 200]
    assert np.isnan(series.p50_us[2:4]).all()
    assert np.isnan(series.max_us[2])
    assert not np.isnan(series.p99_us[1])
    assert np.isnan(series.p99_us[4]), "500 transactions are too few for p99"


def test_rates_are_scaled_by_the_sampling_rate_and_counts_are_not() -> None:
    seconds = np.repeat(np.arange(3), 100)
    summary = summary_of([batch_at(seconds, np.full(300, 10))], sampling_rate=0.1)
    assert summary.ok_count == 300
    assert summary.series.tps.tolist() == [1000, 1000, 1000]


@pytest.mark.parametrize("rate", [0.0, 1.5, -1.0])
def test_impossible_sampling_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="sampling rate"):
        TransactionTally(columns=LogColumns.PLAIN, sampling_rate=rate)


def test_empty_log_has_no_span_and_no_series(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    summary = summarise_logs([path], columns=LogColumns.PLAIN)
    assert (summary.ok_count, summary.first_stamp_us, summary.span_s) == (0, None, None)
    assert len(summary.series.tps) == 0
    assert summary.latency().quantile(0.5).value_us is None


def test_files_of_a_run_may_be_read_one_after_the_other(tmp_path: Path) -> None:
    paths = logs_of("all", "18")
    joined = tmp_path / "joined"
    joined.write_bytes(b"".join(path.read_bytes() for path in reversed(paths)))
    assert summarise_logs([joined], columns=LogColumns.LAG_AND_RETRIES) == summarise_logs(
        paths, columns=LogColumns.LAG_AND_RETRIES
    )
    tally = TransactionTally(columns=LogColumns.LAG_AND_RETRIES)
    assert sum(len(batch) for batch in read_log(joined, LogColumns.LAG_AND_RETRIES, tally)) == 621


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system of its own")
def test_a_part_on_a_full_disk_is_whole_or_an_error_of_the_disk(tmp_path: Path) -> None:
    (path,) = logs_of("plain", "18")
    disk = tmp_path / "disk"
    disk.mkdir()
    outcomes = set()
    for free_kb in (0, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=260k", "none", str(disk)], check=True)
        try:
            (disk / "filler").write_bytes(bytes((260 - free_kb) << 10))
            packer = TransactionPacker(disk / "parts")
            for batch in read_log(path, LogColumns.PLAIN, TransactionTally(columns=LogColumns.PLAIN)):
                packer.add(batch)
            rows = packer._waiting_rows
            error: OSError | None = None
            try:
                packer.close()
            except OSError as exc:
                error = exc
            if error is None:
                assert sum(map(len, read_packed(disk / "parts"))) == rows
            else:
                assert error.errno == errno.ENOSPC
                assert list((disk / "parts").iterdir()) == []
            outcomes.add("whole" if error is None else "refused")
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    assert outcomes == {"refused", "whole"}
