"""What each command says of itself; changed only on purpose, with --update-golden."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand

from pgdyno import __version__
from pgdyno.cli.commands import PlainCommand
from pgdyno.cli.main import app
from pgdyno.conduct.given.server import DEFAULT_CLIENTS, DEFAULT_SCALE
from pgdyno.flow.given.bench import _QUICK_TRIALS, _TRIALS
from tests.cli.program import run_here

COMMANDS = [
    "check",
    "hosts",
    "on",
    "disk",
    "tune",
    "bench",
    "compare",
    "sweep",
    "explain",
    "price",
    "studies",
    "run",
    "plan",
    "resume",
    "report",
    "show",
    "watch",
    "compare-records",
    "export",
    "history",
    "publish",
    "journal",
    "list",
    "clean",
    "restore",
]
GOLDEN = Path(__file__).parent / "golden"


def say(*arguments: str, columns: int = 100) -> str:
    done = run_here(arguments, columns=columns, NO_COLOR="1", TERM="dumb")
    assert done.returncode == 0, done.stderr
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of(command: str, golden: Callable[[Path, str], None]) -> None:
    text = say(command, "--help")
    golden(GOLDEN / f"{command}.txt", text)
    assert "Example" in text


def test_help(golden: Callable[[Path, str], None]) -> None:
    text = say("--help")
    golden(GOLDEN / "pgdyno.txt", text)
    assert all(command in text for command in COMMANDS)
    assert say("-h") == text


@pytest.mark.parametrize("columns", [48, 80, 300])
def test_help_fits_the_terminal(columns: int) -> None:
    for command in COMMANDS:
        lines = say(command, "--help", columns=columns).splitlines()
        # A command that is to be copied stays on its line, however long.
        assert max(len(line) for line in lines if not line.startswith(("  pgdyno ", "  sudo "))) <= min(columns, 100)


def test_help_names_what_a_given_server_gets() -> None:
    bench, sweep, check = (" ".join(say(command, "--help").split()) for command in ("bench", "sweep", "check"))
    for text in (bench, sweep, check):
        assert f"[default: 4 for each CPU; --dsn: {DEFAULT_CLIENTS}]" in text
    for text in (bench, sweep):
        assert f"[default: from the machine; --dsn: {DEFAULT_SCALE}]" in text
    for key in ("duration", "warm_up"):
        assert f"; --dsn: {_TRIALS[key]}, with --quick {_QUICK_TRIALS[key]}]" in bench
    assert _TRIALS["rounds"] == _QUICK_TRIALS["rounds"]
    assert f"--stock-only, --dsn: {_TRIALS['rounds']}]" in bench


def test_examples_name_records_as_they_are_named() -> None:
    texts = [path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt")]
    names = {name for text in texts for name in re.findall(r"pgdyno-(?:records|disks)/(\d[\w-]*)", text)}
    assert len(names) > 3
    assert [name for name in names if not re.match(r"\d{8}-\d{6}-[a-z]", name)] == []


def test_an_example_can_be_copied_as_it_stands() -> None:
    asked = "pgdyno tune --server 15 --workload oltp-write --dataset 20GB --connections 200 --form conf > pgdyno.conf"
    assert f"  {asked}\n" in say("tune", "--help", columns=60)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["--version"]])
def test_who_asks_for_help_waits_for_nothing_else(arguments: list[str]) -> None:
    code = f"""if True:
        import runpy, sys
        sys.argv = ["pgdyno", *{arguments!r}]
        try:
            runpy.run_module("pgdyno", run_name="__main__")
        finally:
            print(*sorted({{"rich", "pydantic", "numpy", "polars", "msgspec"}} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout
    assert done.stderr == "\n"


def test_a_command_without_arguments_does_not_wait_for_them_to_be_converted(tmp_path: Path) -> None:
    code = """if True:
        import runpy, sys
        sys.argv = ["pgdyno", "list", "--json"]
        try:
            runpy.run_module("pgdyno", run_name="__main__")
        finally:
            print(*sorted({"http.server", "pydantic", "polars", "scipy"} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(done.stdout)["records"] == []
    assert done.stderr == "\n"


def test_options_that_were_not_given_are_what_typer_makes_of_them() -> None:
    def read(kind: type[TyperCommand]) -> dict[str, dict[str, object]]:
        for command in app.registered_commands:
            command.cls = kind
        group = typer.main.get_command(app)
        read = {}
        for name, command in group.commands.items():
            needed = ["x" for parameter in command.params if parameter.required]
            read[name] = command.make_context(name, needed).params
        return read

    ours, theirs = read(PlainCommand), read(TyperCommand)
    assert set(ours) == set(COMMANDS)
    assert repr(ours) == repr(theirs)


def test_what_to_type_is_said_as_the_program_was_called(tmp_path: Path) -> None:
    def told(*arguments: str, program: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            # Its examples are told as it was called, from then on.
            for command in app.registered_commands:
                patch.setattr(command, "epilog", command.epilog)
            return run_here(arguments, columns=100, PGDYNO_PROGRAM=program, NO_COLOR="1", TERM="dumb")

    started = [sys.executable, "-m", "pgdyno", "show", "nowhere"]
    environment = {**os.environ, "PGDYNO_PROGRAM": "./pgdyno", "COLUMNS": "100"}
    done = subprocess.run(started, capture_output=True, text=True, check=False, env=environment)
    assert "hint: `./pgdyno list` shows the records" in done.stderr
    assert "hint: `'/a b/pgdyno' list` shows" in told("show", "nowhere", program="/a b/pgdyno").stderr
    assert "`./pgdyno list` shows" in told("show", "nowhere", "--json", program="./pgdyno").stdout
    assert "`./pgdyno bench --quick` makes one" in told("list", "--records", str(tmp_path), program="./pgdyno").stdout
    help_text = told("resume", "--help", program="./pgdyno").stdout
    assert "Usage: ./pgdyno resume" in help_text
    assert "./pgdyno resume pgdyno-records" in help_text
    assert "hint: `pgdyno list`" in told("show", "nowhere", program="").stderr


def test_version() -> None:
    assert say("--version") == f"pgdyno {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pgdyno", "--show-completion", shell],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "pgdyno" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"), [("pgdyno ", {"bench", "show"}), ("pgdyno bench --qui", {"--quick", "--quiet"})]
)
def test_what_completion_offers(typed: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_PGDYNO_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "pgdyno"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **words})
    assert offered <= set(done.stdout.split())


def test_ctrl_c_before_there_is_anything_to_end() -> None:
    code = """if True:
        import os, runpy, signal, sys
        class Impatient:
            def find_spec(self, name, path, target=None):
                if name == "typer":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Impatient())
        sys.argv = ["pgdyno", "list"]
        runpy.run_module("pgdyno", run_name="__main__")"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


# The typed words, and what each shell offers for the last of them. zsh offers by functions that only its line editor has.
_PRESSES = {
    "bash": """
        . ./completion
        press() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pgdyno_completion "$1"; echo "${COMPREPLY[@]}"; }
        complete -p pgdyno | cut -d' ' -f4-
        press ./pgdyno compare-r
        press "$PWD/pgdyno" price --standby-""",
    "zsh": """
        compdef() { print -r -- "-F $*"; }
        . ./completion
        _arguments() { print -r -- "$@" | grep -o '"[a-z-]*"' | tr -d '"'; }
        press() { words=("$@"); CURRENT=$#; _pgdyno_completion; }
        press ./pgdyno compare-r
        press '~/pgdyno' price --standby-""",
    "fish": """
        source ./completion
        complete -C "./pgdyno compare-r" | cut -f1
        complete -C "~/pgdyno price --standby-" | cut -f1""",
}


@pytest.mark.parametrize("shell", [*_PRESSES])
def test_a_shell_completes_the_program_of_a_clone(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    # A shell script like the clone's, which passes on only variables with names that a shell allows.
    program = tmp_path / "pgdyno"
    program.write_text(f'#!/bin/sh\nPGDYNO_PROGRAM=$0 exec {sys.executable} -m pgdyno "$@"\n')
    program.chmod(0o755)
    completion = subprocess.run(
        ["./pgdyno", "--show-completion", shell],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    (tmp_path / "completion").write_text(completion.stdout)
    shown = subprocess.run(
        [shell, "-c", _PRESSES[shell]],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    *registered, first, second = shown.stdout.splitlines()
    assert registered == ([] if shell == "fish" else ["-F _pgdyno_completion pgdyno"])
    assert (first, second) == ("compare-records", "--standby-host"), shown
