"""Output that cannot be written, or not in the encoding of the terminal: the exit code says what the help says."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import ExitCode
from tests.cli.program import Bench
from tests.records import copy_record
from tests.rows import each_row

SESSION = """
from pgdyno.cli.session import session
from pgdyno.errors import SpecError
with session(json={json}, quiet=False, yes=False) as (ui, show):
    {line}
"""
GATE = """
from pgdyno.cli.gate import show_gated
from pgdyno.cli.session import session
from pgdyno.flow.gate import apply_gate, plan_gate
from pgdyno.flow.report import StudyReport
from tests.report.build_comparison import build_switchback
gated = apply_gate(plan_gate(["slower"], junit=None, bmf=None), StudyReport(report=build_switchback()))
with session(json=True, quiet=True, yes=True) as (_, show):
    show_gated(gated, show, json=True)
"""


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def run_line(line: str, *, json: bool, out: int, err: int) -> int:
    program = [sys.executable, "-c", SESSION.format(line=line, json=json)]
    return subprocess.run(program, stdout=out, stderr=err, check=False).returncode


@each_row([("ui.say('a line')", ExitCode.STEP), ("raise SpecError('wrong')", ExitCode.SPEC)])
def test_a_closed_pipe_ends_with_no_code_of_a_gate(line: str, code: ExitCode) -> None:
    """As with `2>&1 | head`: 1 would say that a gate failed, and 120 is Python's own."""
    with closed_pipe() as pipe:
        assert run_line(line, json=False, out=pipe, err=pipe) == code


def test_what_goes_into_a_closed_pipe_ends_with_the_code_of_a_step_or_of_its_error(tmp_path: Path) -> None:
    copy_record(tmp_path / "pgdyno-records" / "a")
    for words, code in (
        ("list --json", ExitCode.STEP),
        ("show nowhere --json", ExitCode.SPEC),
        ("studies template", ExitCode.STEP),
        ("--version", ExitCode.STEP),
        ("list --help", ExitCode.STEP),
    ):
        with closed_pipe() as pipe:
            done = start(tmp_path, words, pipe)
        assert done.returncode == code, words
        assert "Exception" not in done.stderr, words


def start(folder: Path, words: str, out: int, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = Bench(folder).argv(*words.split())
    kept = {**os.environ, **environment}
    return subprocess.run(argv, cwd=folder, stdout=out, stderr=subprocess.PIPE, env=kept, text=True, check=False)


def test_what_a_full_disk_does_not_take_is_the_fault_of_the_machine(tmp_path: Path) -> None:
    copy_record(tmp_path / "pgdyno-records" / "a")
    with Path("/dev/full").open("wb") as full:
        for words, unbuffered, code in (
            ("list --json", "", ExitCode.HOST),
            ("list --json", "1", ExitCode.HOST),
            ("show nowhere --json", "", ExitCode.SPEC),
            ("tune", "", ExitCode.HOST),
            ("--version", "", ExitCode.HOST),
        ):
            done = start(tmp_path, words, full.fileno(), PYTHONUNBUFFERED=unbuffered)
            assert done.returncode == code, words
            assert done.stderr.startswith("error: "), words
            assert "Exception" not in done.stderr, words


def test_a_gate_that_fails_ends_as_such_if_its_document_cannot_be_written() -> None:
    with Path("/dev/full").open("wb") as full, closed_pipe() as pipe:
        for out in (full.fileno(), pipe):
            done = subprocess.run([sys.executable, "-c", GATE], stdout=out, stderr=subprocess.PIPE, check=False)
            assert done.returncode == ExitCode.PROBLEM_FOUND, done.stderr


def test_a_closed_stdout_is_an_error_and_no_bug(tmp_path: Path) -> None:
    copy_record(tmp_path / "pgdyno-records" / "a")
    for words in ("list --json", "list", "--help", "list --help", "--version", "studies template"):
        closing = ["sh", "-c", 'exec "$@" >&-', "sh", *Bench(tmp_path).argv(*words.split())]
        done = subprocess.run(closing, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == ExitCode.HOST, words
        assert done.stderr.startswith("error: the machine refuses: "), words
        assert "Traceback" not in done.stderr, words


def test_a_loop_of_links_is_an_error_and_no_bug(tmp_path: Path) -> None:
    copy_record(tmp_path / "a")
    (tmp_path / "loop").symlink_to("loop")
    for words in ("disk --layout loop", "publish a --to loop"):
        done = Bench(tmp_path).read(*words.split())
        assert done.returncode in {ExitCode.HOST, ExitCode.SPEC}, done.stderr
        assert done.stderr.startswith("error: "), words
        assert "has a bug" not in done.stderr, words


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", "is ± but ?"), ("ascii", "is ? but ?")])
def test_an_encoding_that_lacks_a_character_gets_the_rest(tmp_path: Path, encoding: str, shown: str) -> None:
    copy_record(tmp_path / "pgdyno-records" / "a", study=lambda one: one["study"].update(question="is ± but …"))
    with (tmp_path / "shown").open("wb") as out:
        done = start(tmp_path, "list", out.fileno(), PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert shown in (tmp_path / "shown").read_text(encoding)
