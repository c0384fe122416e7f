"""A failing pgbench's own words, found between its progress lines, in real outputs of 15, 16 and 18."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.record.pgbench.failure import PgbenchFailure, is_client_abort, parse_failure
from tests.record.pgbench_captures import ALL, MAJORS, Capture
from tests.rows import each_row

FAILED = tuple(capture for capture in ALL if capture.exit_code != 0)
KILLED = tuple(capture for capture in FAILED if capture.exit_code < 0)


def of(major: int, name: str) -> PgbenchFailure:
    capture = Capture(major, name)
    return parse_failure(capture.stderr, capture.exit_code)


@each_row(ALL)
def test_there_are_words_exactly_when_something_went_wrong(capture: Capture) -> None:
    failure = parse_failure(capture.stderr, capture.exit_code)
    assert bool(failure.words) == (capture.exit_code > 0)
    assert "progress:" not in failure.words
    assert "tuples (" not in failure.words


@each_row(KILLED)
def test_a_killed_one_names_its_signal(capture: Capture) -> None:
    names = {"interrupted": "SIGINT", "terminated": "SIGTERM", "killed": "SIGKILL", "init-killed": "SIGKILL"}
    assert parse_failure(capture.stderr, capture.exit_code).signal_name == names[capture.name]


@pytest.mark.parametrize("major", MAJORS)
def test_clients_that_fail_alike_are_said_once(major: int) -> None:
    failure = of(major, "no-table")
    assert failure.script_number == 2
    assert failure.words.count("no_such_table") == 2  # in the message, and in the line of SQL below it
    assert failure.words.endswith("(4 times)")
    assert "above results" not in failure.words


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-file", 'could not open file "no-such-file.sql": No such file or directory'),
        ("bad-expression", 'bad-expression.sql:1: syntax error in command "set"'),
        ("bad-expression", "^ error found here"),
        ("bad-command", '"frobnicate"'),
        ("empty-script", 'empty command list for script "empty.sql"'),
        ("not-initialized", "Perhaps you need to do initialization"),
        ("no-such-database", 'database "nowhere" does not exist'),
        ("too-many-clients", "sorry, too many clients already"),
        ("divide", "division by zero"),
        ("one-bad-client", "division by zero"),
        ("server-killed", "terminating connection due to unexpected postmaster exit"),
        ("init-bad-step", 'Allowed step characters are: "dtgGvpf".'),
        ("init-disk-full", "No space left on device"),
        ("init-server-side-disk-full", "No space left on device"),
    ],
)
def test_the_reason_is_among_the_words(major: int, name: str, said: str) -> None:
    assert said in of(major, name).words


def test_only_a_client_that_gave_up_is_an_abort() -> None:
    lines = [line for capture in ALL for line in capture.stderr.split("\n")]
    aborts = [line for line in lines if is_client_abort(line)]
    assert all(" aborted" in line and line.startswith("pgbench: error: client ") for line in aborts)
    # pgbench 16 wrote one of these lines into another one: it is not whole and not counted.
    assert len(aborts) == sum(line.startswith("pgbench: error: client ") for line in lines)


@given(st.text(), st.integers(-64, 255).filter(lambda code: code != 0))
def test_no_text_breaks_it(text: str, exit_code: int) -> None:
    failure = parse_failure(text, exit_code)
    assert (failure.signal_name is None) == (exit_code > 0)
