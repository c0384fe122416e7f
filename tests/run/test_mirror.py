from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.run.cluster.mirror import mirror_folder
from pgdyno.units import PAGE_BYTES
from tests.folders import look_at

MIB = 1024**2


def make(folder: Path) -> Path:
    """A folder with all that there can be."""
    (folder / "base/1").mkdir(parents=True)
    (folder / "base/1/table").write_bytes(os.urandom(6 * MIB + 5 * PAGE_BYTES))
    (folder / "base/1/odd").write_bytes(os.urandom(PAGE_BYTES + 77))
    (folder / "base/1/empty").touch(mode=0o600)
    (folder / "base").chmod(0o700)
    (folder / "link").symlink_to("base/1")
    return age(folder)


def age(folder: Path) -> Path:
    """Let its files be old: a change within a tick of the kernel's clock would leave a new one's time as it is."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(0, 10**18))
    return folder


def pair(tmp_path: Path) -> tuple[Path, Path]:
    source, target = make(tmp_path / "source"), tmp_path / "target"
    shutil.copytree(source, target, symlinks=True)
    return source, target


def test_of_what_is_alike_nothing_is_written(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    before = look_at(target)
    assert mirror_folder(source, target) == 0
    assert look_at(target) == look_at(source) == before


def test_pages_that_changed_are_written_where_they_lie(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    table = target / "base/1/table"
    place = table.stat().st_ino
    with table.open("r+b") as file:
        # Two that are written in one piece with what lies between them, one that is far off, and the last one.
        for page in (3, 8, 300, 6 * MIB // PAGE_BYTES + 4):
            file.seek(page * PAGE_BYTES + 100)
            file.write(b"changed")
    assert mirror_folder(source, target) == (6 + 1 + 1) * PAGE_BYTES
    assert look_at(target) == look_at(source)
    assert table.stat().st_ino == place


def test_whatever_a_server_may_have_made_of_it(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    changed = target / "base/1"
    with (changed / "table").open("ab") as file:
        file.write(b"longer")
    os.truncate(changed / "odd", 100)
    (changed / "empty").write_bytes(b"no more")
    (changed / "stray").write_bytes(b"of the trial")
    (target / "pg_wal").mkdir()
    (target / "pg_wal/1").write_bytes(b"of the trial")
    (target / "link").unlink()
    (target / "link").symlink_to("elsewhere")
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)


def test_what_is_of_another_kind_or_missing(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    (target / "base/1/odd").unlink()
    (target / "base/1/odd").mkdir(mode=0o700)
    (target / "base/1/table").unlink()
    (target / "base/1/empty").unlink()
    (target / "base/1/empty").symlink_to(source / "base/1/odd")
    (target / "link").unlink()
    (target / "link").write_bytes(b"no link")
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)
    shutil.rmtree(target / "base")
    (target / "base").write_bytes(b"no folder")
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)


def test_modes_and_times_are_those_of_the_source(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    (target / "base/1/odd").chmod(0o644)
    # As a write of the same bytes leaves it: nothing is to be written, and the time says so the next time.
    os.utime(target / "base/1/table")
    assert mirror_folder(source, target) == 0
    assert look_at(target) == look_at(source)


def test_broken_off_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = pair(tmp_path)
    (target / "base/1/table").write_bytes(bytes(7 * MIB))
    real, left = os.pwrite, [1]

    def write_or_fail(file: int, content: bytes, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("no space left")
        return real(file, content, offset)

    monkeypatch.setattr(os, "pwrite", write_or_fail)
    with pytest.raises(OSError, match="no space left"):
        mirror_folder(source, target)
    assert (target / "base/1/table").read_bytes() != (source / "base/1/table").read_bytes()
    monkeypatch.undo()
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)


def test_a_write_that_takes_less_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = pair(tmp_path)
    (target / "base/1/odd").write_bytes(b"")
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, offset: real(file, content[:1000], offset))
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)


def large_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Files of a size that is read by several threads: a new one, two with one changed page each, one that is as it was."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("same", "changed", "also", "new"):
        (source / name).write_bytes(os.urandom(PAGE_BYTES) * (9 * MIB // PAGE_BYTES) + b"odd")
    shutil.copytree(age(source), target)
    (target / "new").unlink()
    for name in ("changed", "also"):
        with (target / name).open("r+b") as file:
            file.seek(5 * MIB)
            file.write(b"changed")
    return source, target


def test_large_files_are_done_together_and_told_of_in_the_calling_thread(tmp_path: Path) -> None:
    source, target = large_pair(tmp_path)
    told: list[tuple[int, int]] = []
    written = mirror_folder(source, target, on_bytes=lambda size: told.append((threading.get_ident(), size)))
    assert written == 9 * MIB + 3 + 2 * PAGE_BYTES
    assert look_at(target) == look_at(source)
    assert sum(size for _, size in told) == 4 * (9 * MIB + 3)
    assert {thread for thread, _ in told} == {threading.get_ident()}


def test_what_fails_or_is_broken_off_among_large_files_ends_all_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = large_pair(tmp_path)

    def fail(*_: object) -> int:
        raise OSError("no space left")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="no space left"):
        mirror_folder(source, target)
    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt):
        mirror_folder(source, target, on_bytes=interrupt)
    assert not [one for one in threading.enumerate() if one.name.startswith("mirror")], "no thread goes on writing"
    mirror_folder(source, target)
    assert look_at(target) == look_at(source)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    source, target = pair(tmp_path)
    os.mkfifo(source / "pipe")
    with pytest.raises(OSError, match="neither file nor folder"):
        mirror_folder(source, target)


@given(
    wanted=st.binary(max_size=6),
    there=st.binary(max_size=6),
    unit=st.sampled_from([1, PAGE_BYTES - 1, PAGE_BYTES, 9 * PAGE_BYTES]),
)
def test_any_file_becomes_any_other(
    tmp_path_factory: pytest.TempPathFactory, wanted: bytes, there: bytes, unit: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, content in (("source", wanted), ("target", there)):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(b"".join(bytes([byte]) * unit for byte in content))
    os.utime(folder / "source/file", ns=(0, 12345))
    mirror_folder(folder / "source", folder / "target")
    assert look_at(folder / "target") == look_at(folder / "source")


def test_how_far_it_is_adds_up_to_the_size_of_the_source(tmp_path: Path) -> None:
    source, target = make(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    for change in (lambda: None, lambda: os.utime(target / "base/1/odd", ns=(1, 1)), lambda: None):
        change()
        parts: list[int] = []
        mirror_folder(source, target, on_bytes=parts.append)
        # A link has a size, too: that of its name.
        assert sum(parts) in {size, size + len("base/1")}
        assert look_at(target) == look_at(source)
