from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.record.samples.pings import PINGS_FILE, read_pings

HEADER = '{"format":1,"kind":"ping","statement":"SELECT","rate_per_s":10.0}\n'


def write(folder: Path, text: str) -> Path:
    (folder / PINGS_FILE).write_text(text)
    return folder


def test_each_line_is_an_instant_and_a_round_trip(tmp_path: Path) -> None:
    pings = read_pings(write(tmp_path, f"{HEADER}[10.5,0.001]\n[10.75,0.002]\n"))
    assert (pings.began_s.tolist(), pings.round_trip_s.tolist()) == ([10.5, 10.75], [0.001, 0.002])


@pytest.mark.parametrize("text", ["", HEADER, HEADER[:9]])
def test_a_file_may_have_none(text: str, tmp_path: Path) -> None:
    assert read_pings(write(tmp_path, text)).began_s.tolist() == []


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    assert read_pings(write(tmp_path, f"{HEADER}[10.5,0.001]\n[10.7")).began_s.tolist() == [10.5]


@pytest.mark.parametrize("line", ["damage", "[1.0]", '[1.0,"x"]', "{}"])
def test_damage_is_told(line: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_pings(write(tmp_path, f"{HEADER}{line}\n"))
