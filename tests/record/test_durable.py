"""Files and folders that take each other's place."""

from __future__ import annotations

import ctypes
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import why
from pgdyno.record.durable import drafting_folder, put_in_place, write_durably


def test_two_that_write_one_file_at_a_time_leave_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.html"

    def write_slowly() -> Iterator[bytes]:
        yield b"one "
        write_durably(file, b"another report")
        assert file.read_bytes() == b"another report"
        yield b"report"

    write_durably(file, write_slowly())
    assert file.read_bytes() == b"one report"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_names_the_file_and_not_its_draft(tmp_path: Path) -> None:
    missing, folder = tmp_path / "missing" / "site", tmp_path / "folder"
    (folder / "full").mkdir(parents=True)
    for place in (missing, folder):
        with pytest.raises(OSError, match="directory") as caught:
            write_durably(place, b"")
        assert why(caught.value).startswith(f"{place}: ")
    with pytest.raises(FileNotFoundError) as absent, drafting_folder(missing):
        pass
    assert absent.value.filename == str(missing)
    with pytest.raises(OSError, match="elsewhere"):
        write_durably(tmp_path / "file", (Path("/elsewhere/part").read_bytes() for _ in range(1)))


def test_the_next_writer_removes_the_draft_of_a_killed_one(tmp_path: Path) -> None:
    file, other = tmp_path / "[report].html", tmp_path / ".[report].html.notes.txt"
    other.touch()
    program = """
import sys
from pathlib import Path
from pgdyno.errors import why
from pgdyno.record.durable import write_durably

def write_slowly():
    yield b"half"
    print("begun", flush=True)
    sys.stdin.read()

write_durably(Path(sys.argv[1]), write_slowly())
"""
    argv = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        write_durably(file, b"whole")
        assert len(list(tmp_path.iterdir())) == 3, "the draft of one that is at work stays"
        writer.kill()
    write_durably(file, b"again")
    assert (sorted(tmp_path.iterdir()), file.read_bytes()) == ([other, file], b"again")


def test_the_next_to_make_a_folder_removes_the_draft_of_a_killed_one(tmp_path: Path) -> None:
    place, others = tmp_path / "site", [tmp_path / ".site-packages", tmp_path / ".other.0badc0de.partial"]
    left = tmp_path / ".site.0badc0de.partial"
    for folder in (left, *others):
        (folder / "made").mkdir(parents=True)
    with drafting_folder(place) as draft:
        assert not left.exists()
        (draft / "made").mkdir()
        with drafting_folder(place) as second:
            assert second != draft
        assert (draft / "made").is_dir(), "the draft of one that is at work stays"
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_folder_that_another_one_removes_before_it_is_held_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = fcntl.flock, []

    def lock_late(descriptor: int, operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with drafting_folder(tmp_path / "site") as draft:
        assert (list(tmp_path.iterdir()), len(removed)) == ([draft], 1)
        assert draft not in removed


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_exchange: bool
) -> None:
    new, place, aside = (tmp_path / name for name in ("new", "place", "aside"))
    for folder in (new, place):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    if not can_exchange:
        # As with a libc that has no such call.
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    put_in_place(new, place, aside=aside)
    assert ((place / "file").read_text(), (aside / "file").read_text()) == ("new", "place")
    assert not new.exists()


def test_without_a_new_one_the_old_one_stays(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "new", place, aside=tmp_path / "aside")
    assert place.is_dir()
