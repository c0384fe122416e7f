"""What cannot be read of a command line is told as every other error is."""

from __future__ import annotations

import json
import os
import sys

import pytest

from pgdyno.cli.commands import VARIED
from pgdyno.cli.main import run_program
from pgdyno.flow import comparison_options
from pgdyno.spec.initdb import INITDB_KEYS
from pgdyno.spec.variant import LOAD_HOSTS, OF_LOAD

WRONG = [
    ("bench --scale big", "--scale big: not a whole number", "`pgdyno bench --help` lists the options"),
    (
        "bench --dsn host=db1 --minutes 3",
        "--dsn already determines these options: leave out minutes",
        "--rounds and --duration say how long it takes",
    ),
    ("bench -c 1.5", "--clients 1.5: not a whole number", "`pgdyno bench --help`"),
    ("bench --minutes soon", "--minutes soon: not a number", "`pgdyno bench --help`"),
    ("bench --metrics-port 99999", "--metrics-port 99999: above 65535", "`pgdyno bench --help`"),
    (
        "sweep clients=1,4 --mode simple -M prepared",
        "--mode simple --mode prepared: --mode takes one value",
        "give it once, or vary it: `pgdyno sweep clients=1,4 mode=simple,prepared`",
    ),
    (
        "sweep clients=1,4 scale=1,10 --pool-size=2 --pool-size=8",
        "--pool-size 2 --pool-size 8: --pool-size takes one value",
        "`pgdyno sweep clients=1,4 pool_size=2,8`",
    ),
    (
        "sweep latency<9ms --mode simple --mode prepared",
        "--mode simple --mode prepared: --mode takes one value",
        "give it once",
    ),
    (
        "sweep clients=1,4 --sysctl vm.swappiness=1 --sysctl vm.dirty_ratio=5",
        "--sysctl vm.swappiness=1 --sysctl vm.dirty_ratio=5: --sysctl takes one value",
        "give all in quotes: --sysctl 'vm.swappiness=1 vm.dirty_ratio=5'",
    ),
    (
        "sweep clients=1,4 --set commit_delay=0 --set commit_delay=50",
        "--set commit_delay=0 --set commit_delay=50: commit_delay comes twice",
        "`pgdyno compare --set commit_delay=0 --set commit_delay=50` compares the two",
    ),
    (
        "sweep clients=1,4 --clients 8",
        "an axis varies clients, and an option says what it is for all levels",
        "leave one of them out",
    ),
    ("compare --rate 10 --rate 20", "--rate 10 --rate 20: --rate takes one value", "give it once"),
    # One value that is given twice is the same value.
    ("bench --cache cold --cache cold --scale big", "--scale big: not a whole number", "`pgdyno bench --help`"),
    (
        "bench --server 15 --server 18",
        "--server 15 --server 18: --server takes one value",
        "`pgdyno sweep server=15,18`",
    ),
    (
        "bench --dsn host=db1 --endpoint replicas=host=db2 --endpoint replicas=host=db3",
        "--endpoint replicas=… --endpoint replicas=…: --endpoint takes one value",
        "one connection string lists all hosts that the load reads from: --endpoint replicas='host=db2,db3'",
    ),
    (
        "bench --dsn host=db1 --endpoint primary --endpoint replicas=password=kanarienvogel",
        "--endpoint primary --endpoint replicas=…: --endpoint takes one value",
        "give it once; `pgdyno compare` takes several, and compares them",
    ),
    (
        "bench --dsn host=db1 --allow writes=a --allow writes=b",
        "--allow writes comes twice",
        "give it once",
    ),
    ("bench --scael 3", "there is no option --scael", "did you mean `--scale`?"),
    ("run mine.toml --dsn service=bench", "there is no option --dsn", "a study names its server itself"),
    ("check --server-host db1", "there is no option --server-host", "`pgdyno on DEST check` runs it on another"),
    ("bench --zzz", "there is no option --zzz", "`pgdyno bench --help`"),
    ("--quiet bench", "there is no option --quiet", "`pgdyno bench --help`"),
    ("bnch", "no such command 'bnch'", "did you mean `pgdyno bench`? `pgdyno --help`"),
    ("xyzzy", "no such command 'xyzzy'", "`pgdyno --help` lists the commands"),
    ("bench tpcb-like", "got unexpected extra argument(s) (tpcb-like)", "`pgdyno bench --help`"),
    ("run", "STUDY is missing", "`pgdyno run --help` has examples"),
    ("compare-records", "RECORD is missing", "`pgdyno compare-records --help`"),
    ("show --records", "option '--records' requires an argument", "`pgdyno show --help`"),
    ("show --json=yes", "option '--json' does not take a value", "`pgdyno show --help`"),
]


def told(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str | int | None, str, str]:
    monkeypatch.setattr(sys, "argv", ["pgdyno", *line.split()])
    monkeypatch.delenv("PGDYNO_PROGRAM", raising=False)
    with pytest.raises(SystemExit) as ended:
        run_program()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.mark.parametrize(("line", "fact", "hint"), WRONG)
def test_what_cannot_be_read_is_an_error_like_all_others(
    line: str, fact: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(line, monkeypatch, capsys)
    assert code == 2
    assert out == ""
    first, second = err.splitlines()
    assert first == f"error: {fact}"
    assert second.startswith("hint: ")
    assert hint in second


@pytest.mark.parametrize(("line", "fact", "hint"), WRONG[:4])
def test_who_asked_for_json_gets_the_error_as_json(
    line: str, fact: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(f"{line} --json", monkeypatch, capsys)
    error = json.loads(out)["error"]
    assert (code, error["exit_code"]) == (2, 2)
    assert error["fact"] == fact
    assert hint in error["hint"]
    assert err.startswith("error: ")


@pytest.mark.parametrize("form", ["--form json", "--form=json"])
def test_who_asked_for_the_form_json_gets_the_error_as_json(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = told(f"tune {form} --bogus", monkeypatch, capsys)
    assert (code, json.loads(out)["error"]["exit_code"]) == (2, 2)


def test_a_name_that_is_not_utf_8_is_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = told(os.fsdecode(b"tune --host not\xff/there.toml --json"), monkeypatch, capsys)
    fact = r"cannot read the host file not\xff/there.toml"
    assert json.loads(out)["error"]["fact"] == fact
    assert err.startswith(f"error: {fact}\n")


def test_unlike_values_of_an_option_that_says_how_long_are_not_dropped_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (
        "bench -T 1s --duration 2s --rounds 3 --rounds 3 --disk --no-disk --set fsync=on --set work_mem=1MB --server x"
    )
    code, _, err = told(line, monkeypatch, capsys)
    note, error, _ = err.splitlines()
    assert note == "note: --duration takes one value: the last one given holds"
    assert (code, error) == (2, "error: --server x: neither `embedded` nor a major version")


def test_without_a_word_there_is_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told("", monkeypatch, capsys)
    assert code == 2
    assert "Usage: pgdyno" in out
    assert "compare-records" in out
    assert err == ""


def test_options_that_have_an_axis_and_axes_that_have_an_example_are_those_of_a_sweep() -> None:
    """The command line keeps names of its own, because `--help` loads no types of studies."""
    # No option says from how many of the named load hosts a load comes.
    assert VARIED - {"pool_size"} == OF_LOAD - {LOAD_HOSTS, *INITDB_KEYS}
    assert comparison_options._EXAMPLES.keys() - {"pool_size", "commit_delay"} == OF_LOAD
