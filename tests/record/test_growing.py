"""Files that grow: read in any pieces they give what the whole file gives, and a long one takes no more room than a short one."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import StepFailedError
from pgdyno.record.samples.files import (
    OS_FILE,
    SERVER_FILE,
    OsSamples,
    ServerSamples,
    find_missed,
    read_os_samples,
    read_server_samples,
)
from pgdyno.record.samples.growing import MOST_ROWS, GrowingLines, GrowingSamples
from pgdyno.record.samples.rows import OsHeader, OsRows, ServerHeader, ServerRows
from tests.record.test_samples import DATA, sample, write_os


def follow_os(path: Path) -> GrowingSamples[OsHeader]:
    return GrowingSamples(path, OsHeader, OsRows)


def follow_server(path: Path) -> GrowingSamples[ServerHeader]:
    return GrowingSamples(path, ServerHeader, ServerRows)


@functools.cache
def _read_once(
    read: Callable[[Path], OsSamples | ServerSamples], path: Path
) -> tuple[OsSamples | ServerSamples, bytes]:
    return read(path), path.read_bytes()


@pytest.mark.parametrize("version", ["pg15", "pg18"])
@pytest.mark.parametrize(
    ("name", "follow", "read"),
    [(OS_FILE, follow_os, read_os_samples), (SERVER_FILE, follow_server, read_server_samples)],
)
@given(pieces=st.lists(st.floats(0, 1), max_size=8))
def test_pieces_give_what_the_whole_file_gives(
    version: str,
    name: str,
    follow: Callable[[Path], GrowingSamples[OsHeader] | GrowingSamples[ServerHeader]],
    read: Callable[[Path], OsSamples | ServerSamples],
    pieces: list[float],
) -> None:
    whole, content = _read_once(read, DATA / version / name)
    ends = sorted({*(int(len(content) * one) for one in pieces), len(content)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        growing = follow(path)
        assert growing.read() is None
        for begin, end in zip([0, *ends], ends, strict=False):
            with path.open("ab") as file:
                file.write(content[begin:end])
            seen = growing.read()
    assert seen is not None
    header, frame = seen
    assert header == whole.header
    assert frame.schema == whole.frame.schema
    assert frame.equals(whole.frame)


def test_a_long_file_keeps_its_rates_in_a_bounded_number_of_rows(tmp_path: Path) -> None:
    path = write_os(tmp_path, *(sample(10.0 + n, disk__sda=[7 * n, n]) for n in range(100)))
    growing = follow_os(path)
    growing.read()
    for begin in range(100, 5000, 37):
        with path.open("a") as file:
            lines = (json.dumps(sample(10.0 + n, disk__sda=[7 * n, n])) + "\n" for n in range(begin, begin + 37))
            file.writelines(lines)
        seen = growing.read()
    assert seen is not None
    header, frame = seen
    assert MOST_ROWS / 2 <= frame.height <= MOST_ROWS
    assert header.interval_s == 16
    times = frame["t_s"].to_list()
    assert times == [10.0 + 16 * n for n in range(frame.height)]
    assert frame["disk.sda/reads"].to_list() == [7 * (t - 10) for t in times]
    assert find_missed(OsSamples(header=header, frame=frame, end=None, torn="")) == ()


def test_another_file_in_its_place_is_read_from_its_beginning_and_one_that_is_gone_stays(tmp_path: Path) -> None:
    path = write_os(tmp_path, sample(10.0, load=[1, 2, 3]), sample(11.0))
    growing = follow_os(path)
    growing.read()
    (tmp_path / "trial.cut-1").mkdir()
    path.rename(tmp_path / "trial.cut-1" / path.name)
    stayed = growing.read()
    assert stayed is not None
    assert stayed[1]["t_s"].to_list() == [10.0, 11.0]
    write_os(tmp_path, sample(20.0, load=[1, 2, 3]))
    seen = growing.read()
    assert seen is not None
    assert seen[1]["t_s"].to_list() == [20.0]


def test_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    path = write_os(tmp_path, sample(10.0, load=[1, 2, 3]), tail="{]\n")
    with pytest.raises(StepFailedError, match="damaged"):
        follow_os(path).read()


def test_a_line_without_its_end_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    lines = GrowingLines(path)
    assert lines.read() == (True, [b"one"])
    assert lines.read() == (False, [])
    path.write_bytes(b"one\ntwo\n\n")
    assert lines.read() == (False, [b"two", b""])
    path.write_bytes(b"1\n")
    assert lines.read() == (True, [b"1"])
