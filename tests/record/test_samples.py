from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.samples.files import (
    OS_FILE,
    SERVER_FILE,
    find_missed,
    pack_samples,
    read_os_samples,
    read_server_samples,
)

DATA = Path(__file__).parent.parent / "data" / "samples"
VERSIONS = ["pg15", "pg18"]
HEADER = {
    "format": 1, "kind": "os", "wall_s": 1000.0, "monotonic_s": 10.0, "interval_s": 1.0, "clk_tck": 100,
    "page_bytes": 4096, "fields": {"load": ["load1", "load5", "load15"], "disk": ["reads", "writes"], "cpu": ["user"]},
    "absent": {"psi.cpu": "no such file"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write_os(folder: Path, *lines: dict[str, Any], tail: str = "") -> Path:
    path = folder / OS_FILE
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *lines)) + tail)
    return path


def sample(t: float, **sources: Any) -> dict[str, Any]:
    return {"t": t, "cost_s": t / 1000, **{key.replace("__", "."): value for key, value in sources.items()}}


@pytest.mark.parametrize("version", VERSIONS)
def test_packing_loses_nothing_and_readers_take_either(version: str, folder: Path) -> None:
    shutil.copytree(DATA / version, folder, dirs_exist_ok=True)
    before = read_os_samples(folder), read_server_samples(folder)
    assert {path.name for path in pack_samples(folder)} == {"os.parquet", "server.parquet"}
    assert {path.name for path in folder.iterdir()} == {"os.parquet", "server.parquet"}
    for path in (folder, None):
        after = read_os_samples(path or folder / OS_FILE), read_server_samples(path or folder / SERVER_FILE)
        for one, other in zip(before, after, strict=True):
            assert (one.header, one.end, one.torn) == (other.header, other.end, other.torn)
            assert one.frame.schema == other.frame.schema
            assert one.frame.equals(other.frame, null_equal=True)
    assert pack_samples(folder) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_value_of_the_lines_is_in_the_frame(version: str) -> None:
    header, *lines, _ = [json.loads(line) for line in (DATA / version / OS_FILE).read_text().splitlines()]
    frame = read_os_samples(DATA / version).frame
    assert frame.height == len(lines)
    for row, line in enumerate(lines):
        assert frame["t_s"][row] == line["t"]
        for key, values in line.items():
            if key in {"t", "cost_s"}:
                continue
            kind = key.split(".")[0]
            fields = header["fields"]["cpu" if kind.startswith("cpu") else kind]
            for field, value in zip(fields, values, strict=False):
                assert frame[f"{key}/{field}"][row] == value


@pytest.mark.parametrize("version", VERSIONS)
def test_every_counter_io_row_and_wait_of_the_lines_is_in_the_frame(version: str) -> None:
    header, *lines, _ = [json.loads(line) for line in (DATA / version / SERVER_FILE).read_text().splitlines()]
    frame = read_server_samples(DATA / version).frame
    assert frame.height == len(lines)
    waits = [column for column in frame.columns if column.startswith("wait/")]
    for row, line in enumerate(lines):
        for name, value in zip(header["counters"], line["c"], strict=True):
            assert frame[f"counter/{name}"][row] == value
        for kind, of, context, *values in line["io"]:
            for name, value in zip(header["io"][3:], values, strict=True):
                if value is not None:
                    assert frame[f"io/{kind}/{of}/{context}/{name}"][row] == value
        assert frame.select(pl.sum_horizontal(waits))[row, 0] == sum(count for *_, count in line["waits"])
        for *key, count in line["waits"]:
            assert frame["/".join(["wait", *(part or "" for part in key)])][row] == count


def test_what_is_left_out_is_unchanged_and_what_is_null_is_absent(folder: Path) -> None:
    write_os(
        folder,
        sample(11, load=[0.5, 0.25, 0.0], disk__sda=[1, 2]),
        sample(12, disk__sda=[3, 2]),
        sample(13, disk__sda=None, disk__sdb=[7, 8]),
        sample(14, disk__sda=[0, 0]),
    )
    frame = read_os_samples(folder).frame
    assert frame["load/load1"].to_list() == [0.5, 0.5, 0.5, 0.5]
    assert frame["disk.sda/reads"].to_list() == [1, 3, None, 0]
    assert frame["disk.sdb/writes"].to_list() == [None, None, 8, 8]
    assert frame["disk.sda/reads"].dtype == pl.Int64


def test_digits_that_a_float_would_lose_are_kept(folder: Path) -> None:
    write_os(folder, sample(11, disk__sda=[2**62 + 1, 0]))
    pack_samples(folder)
    assert read_os_samples(folder).frame["disk.sda/reads"][0] == 2**62 + 1


def test_a_line_cut_short_at_the_end_is_kept_apart_and_reported(folder: Path) -> None:
    write_os(folder, sample(11, disk__sda=[1, 2]), tail='{"t":12.0,"cost_s":0.0,"disk.s')
    samples = read_os_samples(folder)
    assert samples.frame.height == 1
    assert samples.end is None
    assert samples.torn == '{"t":12.0,"cost_s":0.0,"disk.s'
    pack_samples(folder)
    assert read_os_samples(folder).torn == samples.torn


@given(cut=st.integers(min_value=0))
def test_a_crash_at_any_byte_loses_at_most_the_line_under_way(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    whole = (DATA / "pg18" / SERVER_FILE).read_bytes()
    data = whole[: cut % (len(whole) + 1)]
    path = tmp_path_factory.mktemp("cut") / SERVER_FILE
    path.write_bytes(data)
    samples = read_server_samples(path)
    complete = data.count(b"\n")
    assert samples.frame.height == max(0, complete - 1 - (samples.end is not None))
    assert (samples.header is None) is (complete == 0)
    assert samples.torn == data.rpartition(b"\n")[2].decode()


def test_damage_in_the_middle_is_refused(folder: Path) -> None:
    path = write_os(folder, sample(11))
    path.write_bytes(path.read_bytes() + b"\0\0\0\n" + b'{"t":12,"cost_s":0}\n')
    with pytest.raises(StepFailedError, match="a samples file is damaged"):
        read_os_samples(folder)


def test_a_newer_format_is_refused(folder: Path) -> None:
    (folder / OS_FILE).write_text(json.dumps({**HEADER, "format": 2}) + "\n")
    with pytest.raises(HostError, match="written by a newer pgdyno"):
        read_os_samples(folder)


def test_no_file_is_an_error_and_an_empty_one_is_no_samples(folder: Path) -> None:
    with pytest.raises(StepFailedError, match="there are no samples"):
        read_os_samples(folder)
    (folder / OS_FILE).write_text("")
    samples = read_os_samples(folder)
    assert samples.header is None
    assert samples.frame.is_empty()
    assert find_missed(samples) == ()
    pack_samples(folder)
    assert read_os_samples(folder).header is None


def test_the_last_words_of_a_sampler_that_never_began_are_kept(folder: Path) -> None:
    (folder / SERVER_FILE).write_text('{"t":1.0,"cost_s":0.1,"end":"failed: cannot connect"}\n')
    samples = read_server_samples(folder)
    assert samples.header is None
    assert samples.end == "failed: cannot connect"


def test_missed_samples_are_found_where_the_step_is_too_long(folder: Path) -> None:
    write_os(folder, *(sample(t) for t in (11.0, 12.1, 13.0, 16.0, 17.0)))
    (missed,) = find_missed(read_os_samples(folder))
    assert (missed.from_s, missed.to_s) == (13.0, 16.0)


def test_a_full_disk_keeps_the_lines_and_leaves_no_draft(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "none", str(tmp_path)], check=True)
    try:
        shutil.copytree(DATA / "pg18", tmp_path, dirs_exist_ok=True)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with (tmp_path / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        with pytest.raises(StepFailedError, match="samples cannot be packed") as caught:
            pack_samples(tmp_path)
        assert "No space left on device" in caught.value.detail
        (tmp_path / "filler").unlink()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ('{"t":11,"cost_s":0,"load":[1,2,3]}\n', OS_FILE),
        ('{"fields":[]}\n', OS_FILE),
        ("7\n", SERVER_FILE),
        (json.dumps(HEADER) + '\n{"t":11}\n', OS_FILE),
        (json.dumps(HEADER) + '\n{"t":11,"cost_s":0,"never":[1]}\n', OS_FILE),
        (json.dumps(HEADER) + '\n{"t":"x","cost_s":0}\n', OS_FILE),
        (json.dumps(HEADER) + "\n[1]\n7\n", OS_FILE),
    ],
)
def test_lines_that_no_sampler_writes_are_damage(folder: Path, lines: str, name: str) -> None:
    (folder / name).write_text(lines)
    with pytest.raises(StepFailedError, match="a samples file is damaged"):
        (read_os_samples if name == OS_FILE else read_server_samples)(folder)


def test_a_frame_that_lacks_its_times_is_damage(folder: Path) -> None:
    write_os(folder, sample(11, load=[1, 2, 3]))
    pack_samples(folder)
    path = folder / "os.parquet"
    metadata = {key: text for key, text in pl.read_parquet_metadata(path).items() if key == "pgdyno"}
    pl.read_parquet(path).drop("t_s").write_parquet(path, metadata=metadata)
    with pytest.raises(StepFailedError, match="a samples file is damaged") as caught:
        read_os_samples(folder)
    assert "t_s" in caught.value.detail
