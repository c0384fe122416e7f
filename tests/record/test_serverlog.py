from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.record.serverlog import (
    LOG_SETTINGS,
    AnyLogEvent,
    Autovacuum,
    CheckpointComplete,
    CheckpointStart,
    Crash,
    ErrorReport,
    LogLine,
    parse_serverlog,
    read_serverlog,
)

DATA = Path(__file__).parent.parent / "data" / "serverlog"
OFFSET_S = 1_795_230_000.0


@pytest.fixture(params=[15, 16, 17, 18])
def major(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def events(major: int) -> tuple[AnyLogEvent, ...]:
    return read_serverlog(DATA / f"pg{major}.log", clock_offset_s=OFFSET_S)


def test_checkpoints_have_their_reasons(major: int, events: tuple[AnyLogEvent, ...]) -> None:
    reasons = [event.reasons for event in events if isinstance(event, CheckpointStart)]
    assert reasons[0] == ("immediate", "force", "wait")
    assert reasons.count(("wal",)) >= 7
    # When it was due in the capture of 17, a paced one was under way still.
    assert reasons.count(("time",)) == (major != 17)
    assert reasons[-2:] == [("end-of-recovery", "immediate", "wait"), ("shutdown", "immediate")]


def test_every_completed_checkpoint_is_understood_whole(major: int, events: tuple[AnyLogEvent, ...]) -> None:
    text = (DATA / f"pg{major}.log").read_text()
    complete = [event for event in events if isinstance(event, CheckpointComplete)]
    assert len(complete) == text.count("checkpoint complete:") >= 10
    for event in complete:
        assert f"write={event.write_s:.3f} s, sync={event.sync_s:.3f} s, total={event.total_s:.3f} s" in event.message
        assert f"distance={event.distance_kb} kB" in event.message
        assert f"wrote {event.written_pages} buffers" in event.message


def test_a_checkpoint_of_18_to_the_last_figure() -> None:
    events = read_serverlog(DATA / "pg18.log", clock_offset_s=OFFSET_S)
    first = next(event for event in events if isinstance(event, CheckpointComplete))
    assert first.origin is not None
    assert first.origin.monotonic_s == pytest.approx(2128.760, abs=1e-6)
    assert (first.written_pages, first.distance_kb) == (201, 1832)
    assert (first.write_s, first.sync_s, first.total_s) == (0.005, 0.044, 0.058)


def test_autovacuums_name_their_table_and_how_long_they_took(events: tuple[AnyLogEvent, ...]) -> None:
    vacuums = [event for event in events if isinstance(event, Autovacuum)]
    assert {event.command for event in vacuums} >= {"vacuum", "analyze"}
    busy = [event for event in vacuums if event.table == "postgres.public.busy"]
    assert len(busy) >= 2
    assert all(event.elapsed_s is not None and event.elapsed_s >= 0 for event in vacuums)
    assert all("system usage" in event.message for event in vacuums)


def test_a_crash_is_told_with_what_the_process_did(events: tuple[AnyLogEvent, ...]) -> None:
    (crash,) = [event for event in events if isinstance(event, Crash)]
    assert "was terminated by signal 9" in crash.message
    assert crash.attached["DETAIL"].startswith("Failed process was running:")


def test_errors_keep_their_statement_and_state(events: tuple[AnyLogEvent, ...]) -> None:
    errors = {e.origin.sqlstate: e for e in events if isinstance(e, ErrorReport) and e.origin is not None}
    assert errors["22012"].message == "division by zero"
    assert errors["22012"].attached == {"STATEMENT": "SELECT 1 /\n  0"}
    assert errors["3D000"].origin is not None
    assert errors["3D000"].origin.level == "FATAL"
    assert set(errors["40P01"].attached) == {"DETAIL", "HINT", "CONTEXT", "STATEMENT"}
    assert errors["40P01"].attached["DETAIL"].count("\n") == 3


def test_nothing_is_dropped(major: int, events: tuple[AnyLogEvent, ...]) -> None:
    said = "\n".join("\n".join((event.message, *event.attached.values())) for event in events).split("\n")
    lines = [line for line in (DATA / f"pg{major}.log").read_text().split("\n") if line]
    assert len(said) == len(lines)
    for line in lines:
        text = line.split("|", 4)[-1] if line[0].isdigit() else line.removeprefix("\t")
        label, _, rest = text.partition(":  ")
        assert (rest if label.isupper() else text) in said


def test_events_are_in_the_order_of_the_log(events: tuple[AnyLogEvent, ...]) -> None:
    times = [event.origin.monotonic_s for event in events if event.origin is not None]
    assert times == sorted(times)
    assert len(times) == len(events)


def test_lines_of_others_and_a_line_cut_short_are_kept() -> None:
    text = (
        "postgres: could not find the database system\n"
        "1795232128.593|29373|postmaster|00000|LOG:  starting PostgreSQL 18.6\n"
        "\ton two lines\n"
        "malloc(): corrupted top size\n"
        "\tnot a continuation of ours\n"
        "1795232128.760|29377|checkpointer|00000|LOG:  checkpoint complete: wrote 201 buf"
    )
    events = parse_serverlog(text, clock_offset_s=OFFSET_S)
    assert all(isinstance(event, LogLine) for event in events)
    assert [event.message for event in events] == [
        "postgres: could not find the database system",
        "starting PostgreSQL 18.6\non two lines",
        "malloc(): corrupted top size",
        "\tnot a continuation of ours",
        "checkpoint complete: wrote 201 buf",
    ]
    assert [event.origin is None for event in events] == [True, False, True, True, False]


def test_messages_of_two_processes_that_interleave_are_not_mixed() -> None:
    text = (
        "1.000|7|client backend|22012|ERROR:  division by zero\n"
        "1.000|8|client backend|22012|ERROR:  relation missing\n"
        "1.001|7|client backend|22012|STATEMENT:  SELECT 1/0\n"
        "1.001|8|client backend|22012|STATEMENT:  SELECT\n\t* FROM nowhere\n"
    )
    one, two = parse_serverlog(text, clock_offset_s=0)
    assert one.attached == {"STATEMENT": "SELECT 1/0"}
    assert two.attached == {"STATEMENT": "SELECT\n* FROM nowhere"}


def test_a_background_worker_that_leaves_is_no_crash_and_a_backend_with_exit_code_2_is() -> None:
    text = (
        '1.000|7|postmaster|00000|LOG:  background worker "logical replication launcher" (PID 3) exited with exit code 1\n'
        "1.000|7|postmaster|00000|LOG:  server process (PID 5) exited with exit code 2\n"
    )
    worker, backend = parse_serverlog(text, clock_offset_s=0)
    assert isinstance(worker, LogLine)
    assert isinstance(backend, Crash)


def test_the_settings_it_needs_are_those_of_the_captures() -> None:
    assert LOG_SETTINGS["log_line_prefix"] == "%n|%p|%b|%e|"
    guide = (Path(__file__).parents[2] / "docs/guide/records.md").read_text(encoding="utf-8")
    assert f"pgbadger -f stderr -p '{LOG_SETTINGS['log_line_prefix']}'" in guide
    assert LOG_SETTINGS["log_checkpoints"] == "on"
    assert LOG_SETTINGS["log_autovacuum_min_duration"] == "0"
