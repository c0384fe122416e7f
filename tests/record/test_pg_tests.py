"""On what the programs of real versions printed: tests/tools/capture_disk.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.record.device.pg_tests import parse_clock_test, parse_flush_tests

DATA = Path(__file__).parents[1] / "data/disk"
VERSIONS = ("15", "16", "18")
ONE, TWO = "one 8kB write", "two 8kB writes"
METHODS = ["open_datasync", "fdatasync", "fsync", "fsync_writethrough", "open_sync"]


def read(program: str, name: str) -> str:
    return (DATA / f"{program}-{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", VERSIONS)
def test_all_lines_of_pg_test_fsync(version: str) -> None:
    text = read("pg_test_fsync", version)
    tests = parse_flush_tests(text)
    assert len(tests) == text.count("ops/sec") + text.count("n/a")
    groups = list(dict.fromkeys(test.group for test in tests))
    assert groups == [
        ONE,
        TWO,
        "open_sync with different write sizes",
        "fsync on non-write file descriptor",
        "Non-sync'ed 8kB writes",
    ]
    for group in (ONE, TWO):
        assert [test.name for test in tests if test.group == group] == METHODS
        assert [test.name for test in tests if test.group == group and test.is_default] == ["fdatasync"]
    sizes = [test.name for test in tests if test.group == groups[2]]
    assert sizes[0] == "1 * 16kB open_sync write"
    assert sizes[-1] == "16 *  1kB open_sync writes"
    assert [test.name for test in tests if test.group == groups[3]] == ["write, fsync, close", "write, close, fsync"]
    assert [test.name for test in tests if test.group == groups[4]] == ["write"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_platform_has_not_has_no_figures(version: str) -> None:
    for test in parse_flush_tests(read("pg_test_fsync", version)):
        is_absent = test.name == "fsync_writethrough"
        assert (test.ops_per_s is None) == (test.op_us is None) == is_absent
        assert (test.remark == "this platform has no such method") == is_absent
        if test.ops_per_s and test.op_us and test.op_us > 100:
            assert 1e6 / test.ops_per_s == pytest.approx(test.op_us, abs=0.51)


def test_what_a_file_system_refuses_is_told_apart() -> None:
    refused = {
        test.name: test.remark for test in parse_flush_tests(read("pg_test_fsync", "15-no-direct")) if test.group == ONE
    }
    assert refused["open_sync"] == refused["open_datasync"] == "the file system refuses direct I/O"
    assert refused["fdatasync"] is None
    assert refused["fsync_writethrough"] == "this platform has no such method"


def test_output_that_is_cut_off_is_refused() -> None:
    text = read("pg_test_fsync", "18")
    with pytest.raises(ValueError, match="did not come to its end"):
        parse_flush_tests(text[: text.index("Non-sync")])
    with pytest.raises(ValueError, match="did not come to its end"):
        parse_flush_tests("pg_test_fsync: error: could not open output file\n")


def test_a_group_that_is_not_known_is_left_out() -> None:
    text = read("pg_test_fsync", "18")
    renamed = parse_flush_tests(text.replace("Non-sync'ed 8kB writes:", "Writes without a flush:"))
    assert renamed == parse_flush_tests(text)[:-1]
    added = text.replace(
        "Test if fsync", "Compare io_uring:\n        fsync   794.913 ops/sec  1258 usecs/op\n\nTest if fsync"
    )
    assert parse_flush_tests(added) == parse_flush_tests(text)


@pytest.mark.parametrize("version", VERSIONS)
def test_pg_test_timing(version: str) -> None:
    text = read("pg_test_timing", version)
    test = parse_clock_test(text)
    assert f"overhead: {test.read_ns:.2f} ns" in text
    assert test.unit == "us"
    assert list(test.counts) == [str(2**power) for power in range(len(test.counts))]
    # It reads the clock over and over for a second, which all readings together fill.
    assert sum(test.counts.values()) * test.read_ns == pytest.approx(1e9, rel=0.01)


def test_a_clock_test_that_failed_is_refused() -> None:
    with pytest.raises(ValueError, match="did not come to its end"):
        parse_clock_test("pg_test_timing: error: out of range")


def test_pg_test_timing_as_the_manual_of_19_shows_it() -> None:
    # Of the system's clock only, and no row of the exact durations or of the CPU's counter among them.
    test = parse_clock_test(read("pg_test_timing", "19-manual"))
    assert test.read_ns == 44.67
    assert test.unit == "ns"
    assert list(test.counts) == [str(2**power - 1) for power in range(17)]
    assert test.counts["63"] == 16974658
