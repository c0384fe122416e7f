from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgdyno.run.host.cache import fingerprint, keep_for, keep_text


class Maker:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"Größe {self.count}\r\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is; not made yet."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "pgdyno"


def test_it_is_made_once_for_each_name(cache: Path) -> None:
    make = Maker()
    assert [keep_text(name, make) for name in ("a-1", "a-1", "a-2", "a-1")] == [
        f"Größe {number}\r\n" for number in (1, 1, 2, 1)
    ]
    assert {path.name for path in cache.iterdir()} == {"a-1", "a-2"}
    assert cache.stat().st_mode & 0o077 == 0


def test_a_result_for_another_key_is_replaced(cache: Path, tmp_path: Path) -> None:
    make = Maker()
    assert [keep_for("a", key, make) for key in ("1", "1", "2", "1")] == [
        f"Größe {number}\r\n" for number in (1, 1, 2, 3)
    ]
    assert [path.name for path in cache.iterdir()] == ["a"]


def test_a_fingerprint_is_of_all_that_counts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "b.txt").write_text("1")

    def take() -> tuple[str, str]:
        return fingerprint(tmp_path), fingerprint(tmp_path, "more", suffixes=(".py",))

    before = take()
    assert (len(set(before)), take()) == (2, before)
    (tmp_path / "b.txt").write_text("12")
    changed = take()
    assert (changed[0] != before[0], changed[1]) == (True, before[1])
    os.utime(tmp_path / "a.py", (1, 1))
    assert all(one != other for one, other in zip(take(), changed, strict=True))


def test_what_is_damaged_is_made_again(cache: Path) -> None:
    make = Maker()
    keep_text("a", make)
    whole = (cache / "a").read_bytes()
    for number, damage in enumerate((b"", whole[:-1], whole.replace(b"1", b"7"), whole + b"x"), start=2):
        (cache / "a").write_bytes(damage)
        assert keep_text("a", make) == keep_text("a", make) == f"Größe {number}\r\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_what_another_account_wrote_is_made_again(cache: Path) -> None:
    make = Maker()
    keep_text("a", make)
    os.chown(cache / "a", 65534, 65534)
    assert keep_text("a", make) == keep_text("a", make) == "Größe 2\r\n"


@pytest.mark.parametrize("home", ["/nonexistent", "/dev/null", "", None])
def test_without_a_place_it_is_made_each_time(cache: Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    monkeypatch.chdir(cache.parents[1])
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    make = Maker()
    assert [keep_text("a", make) for _ in range(2)] == ["Größe 1\r\n", "Größe 2\r\n"]
    assert not Path("/nonexistent").exists()


def test_the_users_own_place_is_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    for named, folder in (("elsewhere", cache), (str(tmp_path / "c"), tmp_path / "c" / "pgdyno")):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        keep_text("a", make)
        assert (folder / "a").exists()
