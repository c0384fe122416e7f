"""What a machine that lies can send as a record."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from pgdyno.run.over.command import _extract
from pgdyno.run.over.far_run import put_files


def extract(folder: Path, *entries: tarfile.TarInfo) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        for entry in tar:
            _extract(tar, entry, folder)


def entry(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, 0o6777
    made.size = 1 if kind == tarfile.REGTYPE else 0
    return made


def test_nothing_that_comes_home_lands_outside_of_its_folder(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    for name in (f"{other}/a", "../other/a", "b/../../other/a"):
        with pytest.raises(tarfile.TarError, match="leads elsewhere"):
            extract(home, entry(name))
    links = [entry("s", kind=tarfile.SYMTYPE, link=str(other)), entry("h", kind=tarfile.LNKTYPE, link="/etc/passwd")]
    extract(home, *links, entry("d", kind=tarfile.CHRTYPE), entry("p", kind=tarfile.FIFOTYPE))
    assert not [*home.iterdir()]
    with pytest.raises(FileNotFoundError):
        extract(home, links[0], entry("s/a"))
    assert not [*other.iterdir()]
    extract(home, entry("good"))
    assert not os.access(home / "good", os.X_OK)


def pack(*entries: tarfile.TarInfo) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    file.seek(0)
    return file


def test_no_name_of_a_record_leads_out_of_its_folder_there(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("../a", str(tmp_path / "a"), "mine/../../a"):
        with pytest.raises(OSError, match="leads out of the folder"):
            put_files(tmp_path / "work", pack(entry(name)))
    link = entry("mine/a", kind=tarfile.SYMTYPE, link=str(tmp_path))
    hard = entry("mine/a", kind=tarfile.LNKTYPE, link="/etc/passwd")
    put_files(tmp_path / "work", pack(entry("mine/a..b"), link, hard))
    assert [path.name for path in tmp_path.rglob("a*")] == ["a..b"]
