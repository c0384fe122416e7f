"""The log of a record: what it holds, and that it never gets in a study's way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgdyno.run.host.log import LOG, LOG_FILE, logging_into, pending_log

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) .+")


def test_what_came_before_the_record_comes_first_and_nothing_after_it(tmp_path: Path) -> None:
    with pending_log():
        LOG.info("checked")
        with logging_into(tmp_path):
            LOG.info("measured")
        LOG.info("reported")
    lines = (tmp_path / LOG_FILE).read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["checked", "measured"]
    assert all(LINE.fullmatch(line) for line in lines)


def test_a_resumed_study_appends(tmp_path: Path) -> None:
    for word in ("first", "second"):
        with logging_into(tmp_path):
            LOG.info(word)
    assert [line.split()[-1] for line in (tmp_path / LOG_FILE).read_text().splitlines()] == ["first", "second"]


def test_a_full_disk_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / LOG_FILE).symlink_to("/dev/full")
    with logging_into(tmp_path):
        LOG.info("x" * 100_000)
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with logging_into(tmp_path / "nowhere"):
        LOG.info("unheard")
    assert capfd.readouterr() == ("", "")


def test_an_error_comes_with_its_traceback(tmp_path: Path) -> None:
    with logging_into(tmp_path):
        try:
            int("broken")
        except ValueError:
            LOG.exception("the study fails")
    text = (tmp_path / LOG_FILE).read_text()
    assert "ERROR the study fails\nTraceback" in text
    assert text.endswith("ValueError: invalid literal for int() with base 10: 'broken'\n")
