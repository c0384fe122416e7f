"""Suggested commands name the program so that the user's shell finds it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pgdyno.run.host.program import program_name


def test_an_installed_program_is_named_as_the_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(called: str, *, path: Path, **environment: str) -> str:
        with monkeypatch.context() as patch:
            patch.delenv("PGDYNO_PROGRAM", raising=False)
            patch.delenv("UV", raising=False)
            patch.setattr(sys, "argv", [called, "bench"])
            for name, value in {"PATH": str(path), **environment}.items():
                patch.setenv(name, value)
            return program_name()

    installed, linked, other, empty = (tmp_path / name for name in ("venv", "bin", "other", "empty"))
    for folder in (installed, linked, other, empty):
        folder.mkdir()
    for folder in (installed, other):
        (folder / "pgdyno").touch(mode=0o755)
    (linked / "pgdyno").symlink_to(installed / "pgdyno")
    called = str(installed / "pgdyno")
    rows = (
        (named(called, path=installed), "pgdyno"),
        (named(called, path=linked), "pgdyno"),
        (named(called, path=empty), called),
        (named(called, path=other), called),
        (named(called, path=installed, UV="/usr/bin/uv"), called),
        (named("pgdyno", path=empty), "pgdyno"),
        (named("/usr/lib/python3/pgdyno/__main__.py", path=empty), "pgdyno"),
        (named(called, path=installed, PGDYNO_PROGRAM="./pgdyno"), "./pgdyno"),
    )
    for number, (name, expected) in enumerate(rows):
        assert name == expected, f"row {number}"
