"""The parser against what pgbench 15, 16 and 18 really printed, and against its printf formats for 17.

No pgbench 17 was at hand to be captured; no byte of a real one has been read. Sources of about that version print what
16 prints, the sections of the scripts included. So 17 is proven only as far as `render_summary` below, which writes
those formats, is what it prints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.record.pgbench.output import (
    PgbenchSummary,
    Progress,
    ScriptResult,
    StatementResult,
    parse_progress,
    parse_summary,
)
from tests.record.pgbench_captures import DATA, LOADS, MAJORS, Capture
from tests.rows import each_row

COMPLETE = tuple(capture for capture in LOADS if "\ntps = " in capture.stdout)
SCRIPTED = tuple(capture for capture in COMPLETE if "SQL script " in capture.stdout)


def of(major: int, name: str) -> PgbenchSummary:
    return parse_summary(Capture(major, name).stdout)


@each_row(LOADS)
def test_every_line_of_a_real_output_is_taken_by_name(capture: Capture) -> None:
    assert parse_summary(capture.stdout).unknown_lines == ()


def test_the_captures_hold_every_kind_of_line() -> None:
    fields = {name for name in PgbenchSummary.__struct_fields__ if name != "unknown_lines"}
    for major in MAJORS:
        seen = [parse_summary(capture.stdout) for capture in LOADS if capture.major == major]
        for name in fields:
            assert any(getattr(summary, name) not in {None, (), False} for summary in seen), (major, name)


@pytest.mark.parametrize("name", ["everything", "verbose-errors", "connect", "other-server", "no-table"])
@pytest.mark.parametrize("major", MAJORS)
def test_what_is_read_from_a_capture_stays_the_same(major: int, name: str, golden: Callable[[Path, str], None]) -> None:
    text = msgspec.json.format(msgspec.json.encode(of(major, name)), indent=1).decode() + "\n"
    golden(DATA / "expected" / f"{major}-{name}.json", text)


@each_row(COMPLETE)
def test_percentages_that_pgbench_prints_follow_from_the_counts(capture: Capture) -> None:
    summary = parse_summary(capture.stdout)
    assert summary.transaction_count is not None
    assert summary.failed_count is not None
    printed = re.search(r"^number of failed transactions: .* \((.*)%\)", capture.stdout, re.MULTILINE)
    assert printed is not None
    attempted = summary.transaction_count + summary.failed_count + (summary.skipped_count or 0)
    assert 100.0 * summary.failed_count / attempted == pytest.approx(float(printed[1]), abs=0.0006)


@each_row(SCRIPTED)
def test_scripts_add_up_to_the_whole(capture: Capture) -> None:
    summary = parse_summary(capture.stdout)
    assert [script.number for script in summary.scripts] == list(range(1, len(summary.scripts) + 1))
    # pgbench's threads add to a script's counts without a lock, and so lose some: exact for a single thread only.
    lost = 0.0 if summary.thread_count == 1 else 1e-3
    total = sum(script.transaction_count or 0 for script in summary.scripts)
    assert total == pytest.approx(summary.transaction_count, rel=lost, abs=0)
    assert sum(script.failed_count or 0 for script in summary.scripts) == summary.failed_count
    assert sum(script.tps or 0.0 for script in summary.scripts) == pytest.approx(summary.tps, rel=lost + 1e-6)
    assert summary.statements == ()
    for script in summary.scripts:
        if capture.major >= 18:
            counts = (script.transaction_count, script.failed_count, script.skipped_count)
            assert script.attempted_count == sum(count or 0 for count in counts)
        else:
            assert script.attempted_count is None


@pytest.mark.parametrize("major", MAJORS)
def test_a_script_that_never_ran_has_counts_but_no_latency(major: int) -> None:
    never = of(major, "weight-zero").scripts[1]
    assert (never.name, never.weight) == ("nap.sql", 0)
    assert never.latency_average_ms is None
    assert never.statements == (
        StatementResult(text="SELECT pg_sleep(0.02);", latency_average_ms=None, failure_count=0, retry_count=None),
    )


@pytest.mark.parametrize("major", MAJORS)
def test_statements_of_a_single_script(major: int) -> None:
    statements = of(major, "tpcb-like").statements
    assert len(statements) == 11
    assert statements[0].text == "\\set aid random(1, 100000 * :scale)"
    assert statements[0].latency_average_ms is not None
    assert statements[5].text == "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;"
    assert statements[5].latency_average_ms is not None
    assert statements[5].latency_average_ms > 0
    assert statements[5].retry_count is None
    assert of(major, "retries").statements[0].retry_count == 0
    assert [s.failure_count > 0 for s in of(major, "retries").statements] == [False, False, False, True, False]


def test_versions_of_pgbench_and_server() -> None:
    assert of(18, "tpcb-like").pgbench_version == "18.6"
    assert of(18, "tpcb-like").server_version is None
    assert of(18, "other-server").server_version == "15.18 (Debian 15.18-0+deb12u1)"
    assert of(15, "other-server").pgbench_version == "15.18 (Debian 15.18-0+deb12u1)"
    assert of(15, "other-server").server_version == "18.6"


@pytest.mark.parametrize("major", MAJORS)
def test_what_is_absent_is_none(major: int) -> None:
    plain = of(major, "simple-update")
    assert plain.is_complete
    assert plain.max_tries_count == 1
    assert (plain.retried_count, plain.retry_count, plain.skipped_count) == (None, None, None)
    assert (plain.serialization_failure_count, plain.latency_limit_ms, plain.latency_stddev_ms) == (None, None, None)
    assert of(major, "retries-unlimited").max_tries_count is None
    for name in ("interrupted", "killed", "no-table", "bad-expression"):
        assert not of(major, name).is_complete
    nothing_ran = of(major, "no-table")
    assert nothing_ran.transaction_count == 0
    assert nothing_ran.latency_average_ms is None


INVENTED = "number of transactions blessed: 7 (0.001%)"


@pytest.mark.parametrize("capture", [Capture(major, "everything") for major in MAJORS], ids=str)
def test_an_invented_line_is_kept_wherever_it_stands(capture: Capture) -> None:
    lines = capture.stdout.splitlines()
    expected = msgspec.structs.replace(parse_summary(capture.stdout), unknown_lines=(INVENTED,))
    for place in range(len(lines) + 1):
        text = "\n".join([*lines[:place], INVENTED, *lines[place:]]) + "\n"
        assert parse_summary(text) == expected


@pytest.mark.parametrize("capture", [Capture(major, "everything") for major in MAJORS], ids=str)
def test_a_line_said_twice_is_kept_and_does_not_overwrite(capture: Capture) -> None:
    text = capture.stdout.replace("number of clients: 8\n", "number of clients: 8\nnumber of clients: 9\n")
    summary = parse_summary(text)
    assert summary.client_count == 8
    assert summary.unknown_lines == ("number of clients: 9",)


def is_part(some: object, whole: object) -> bool:
    """Whether all that `some` has is in `whole`."""
    if isinstance(some, tuple) and isinstance(whole, tuple):
        return len(some) <= len(whole) and all(map(is_part, some, whole))
    if isinstance(some, PgbenchSummary | ScriptResult):
        names = [name for name in some.__struct_fields__ if name != "unknown_lines"]
        return all(is_part(getattr(some, name), getattr(whole, name)) for name in names)
    return some is None or some is False or some == whole


@given(capture=st.sampled_from(LOADS), share=st.floats(0, 1))
def test_a_cut_output_gives_a_part_of_the_whole(capture: Capture, share: float) -> None:
    whole = capture.stdout
    part = parse_summary(whole[: round(share * len(whole))])
    assert is_part(part, parse_summary(whole))
    assert len(part.unknown_lines) <= 1


@given(st.text(alphabet=st.sampled_from("ptsSQL =:()-%.0123456789 \n\r\t\x0b\u2028NaN")))
def test_garbage_is_never_dropped(text: str) -> None:
    summary = parse_summary(text)
    consumed = msgspec.structs.replace(summary, unknown_lines=())
    if consumed == PgbenchSummary():
        assert list(summary.unknown_lines) == [line for line in text.split("\n") if line]


# --- the printf formats themselves -------------------------------------------------------------------------------

COUNT = st.integers(0, 10**12)
MS = st.integers(0, 10**9).map(lambda us: us / 1000)
TPS = st.integers(0, 10**13).map(lambda micro: micro / 10**6)
TEXT = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1).map(
    lambda text: f"SELECT {text}"
)


@st.composite
def summaries(draw: st.DrawFn) -> PgbenchSummary:
    tries = draw(st.sampled_from([None, 1, 5]))
    has_retries = tries != 1
    is_limited = draw(st.booleans())

    def counts() -> dict[str, object]:
        statements = draw(st.lists(st.tuples(TEXT, st.integers(1, 10**9), COUNT, COUNT), max_size=3))
        return {
            "transaction_count": draw(COUNT),
            "failed_count": draw(COUNT),
            "serialization_failure_count": draw(COUNT),
            "deadlock_failure_count": draw(COUNT),
            "retried_count": draw(COUNT) if has_retries else None,
            "retry_count": draw(COUNT) if has_retries else None,
            "skipped_count": draw(COUNT) if is_limited else None,
            "latency_average_ms": draw(MS),
            "latency_stddev_ms": draw(st.none() | MS),
            "tps": draw(TPS),
            "statements": tuple(
                StatementResult(
                    text=text,
                    latency_average_ms=us / 1000,
                    failure_count=failures,
                    retry_count=retries if has_retries else None,
                )
                for text, us, failures, retries in statements
            ),
        }

    names = draw(st.lists(TEXT, max_size=3).filter(lambda names: len(names) != 1))
    whole = counts()
    if names:
        whole["statements"] = ()
    return PgbenchSummary(
        **whole,
        pgbench_version="17.5",
        server_version=draw(st.sampled_from([None, "16.14", "15.18 (Debian 15.18-0+deb12u1)"])),
        transaction_type="multiple scripts" if names else draw(TEXT),
        scale=draw(COUNT),
        query_mode=draw(st.sampled_from(["simple", "extended", "prepared"])),
        client_count=draw(COUNT),
        thread_count=draw(COUNT),
        max_tries_count=tries,
        duration_s=float(draw(st.integers(1, 10**6))),
        latency_limit_ms=draw(st.integers(1, 10**6).map(lambda tenths: tenths / 10)) if is_limited else None,
        above_limit_count=draw(COUNT) if is_limited else None,
        schedule_lag_average_ms=draw(MS) if is_limited else None,
        schedule_lag_max_ms=draw(MS) if is_limited else None,
        initial_connection_time_ms=draw(MS),
        scripts=tuple(
            ScriptResult(number=number, name=name, weight=draw(COUNT), **counts())
            for number, name in enumerate(names, start=1)
        ),
    )


def render_counts(of_part: PgbenchSummary | ScriptResult) -> list[str]:
    # A percentage of 0/0 is printed as NaN; the parser must not care which.
    lines = [
        f"number of failed transactions: {of_part.failed_count} (NaN%)",
        f"number of serialization failures: {of_part.serialization_failure_count} (1.500%)",
        f"number of deadlock failures: {of_part.deadlock_failure_count} (0.000%)",
    ]
    if of_part.retried_count is not None:
        lines += [
            f"number of transactions retried: {of_part.retried_count} (0.000%)",
            f"total number of retries: {of_part.retry_count}",
        ]
    if of_part.skipped_count is not None:
        lines.append(f"number of transactions skipped: {of_part.skipped_count} (0.000%)")
    return lines


def render_latency(of_part: PgbenchSummary | ScriptResult) -> list[str]:
    stddev = "NaN" if of_part.latency_stddev_ms is None else f"{of_part.latency_stddev_ms:.3f}"
    return [f"latency average = {of_part.latency_average_ms:.3f} ms", f"latency stddev = {stddev} ms"]


def render_statements(of_part: PgbenchSummary | ScriptResult, *, has_retries: bool) -> list[str]:
    lines = [f"statement latencies in milliseconds{', failures and retries' if has_retries else ' and failures'}:"]
    for statement in of_part.statements:
        retries = f"  {statement.retry_count:10d}" if has_retries else ""
        line = f"   {statement.latency_average_ms:11.3f}  {statement.failure_count:10d}{retries}  {statement.text}"
        lines.append(line)
    return lines


def render_summary(summary: PgbenchSummary) -> str:
    """What printResults of PostgreSQL 15 to 17 prints.

    Source: src/bin/pgbench/pgbench.c, and the captures of 15 and 16.
    """
    has_retries = summary.max_tries_count != 1
    server = "" if summary.server_version is None else f", server {summary.server_version}"
    lines = [
        f"pgbench ({summary.pgbench_version}{server})",
        f"transaction type: {summary.transaction_type}",
        f"scaling factor: {summary.scale}",
        f"query mode: {summary.query_mode}",
        f"number of clients: {summary.client_count}",
        f"number of threads: {summary.thread_count}",
        *([] if summary.max_tries_count is None else [f"maximum number of tries: {summary.max_tries_count}"]),
        f"duration: {summary.duration_s:.0f} s",
        f"number of transactions actually processed: {summary.transaction_count}",
        *render_counts(summary),
    ]
    if summary.latency_limit_ms is not None:
        limit = f"{summary.latency_limit_ms:.1f} ms latency limit: {summary.above_limit_count}/12 (0.000%)"
        lines.append(f"number of transactions above the {limit}")
    lines += render_latency(summary)
    if summary.schedule_lag_max_ms is not None:
        lag = f"avg {summary.schedule_lag_average_ms:.3f} (max {summary.schedule_lag_max_ms:.3f}) ms"
        lines.append(f"rate limit schedule lag: {lag}")
    lines.append(f"initial connection time = {summary.initial_connection_time_ms:.3f} ms")
    lines.append(f"tps = {summary.tps:f} (without initial connection time)")
    if not summary.scripts:
        lines += render_statements(summary, has_retries=has_retries)
    for script in summary.scripts:
        lines.append(f"SQL script {script.number}: {script.name}")
        body = [
            f"weight: {script.weight} (targets 33.3% of total)",
            f"{script.transaction_count} transactions (33.3% of total, tps = {script.tps:f})",
            *render_counts(script),
            *render_latency(script),
        ]
        begin, *rows = render_statements(script, has_retries=has_retries)
        lines += [f" - {line}" for line in [*body, begin]] + rows
    return "\n".join(lines) + "\n"


@given(summaries())
def test_what_is_printed_is_read(summary: PgbenchSummary) -> None:
    assert parse_summary(render_summary(summary)) == summary


# --- progress ------------------------------------------------------------------------------------------------------


@each_row(LOADS)
def test_every_progress_line_is_read(capture: Capture) -> None:
    lines = [line for line in capture.stderr.split("\n") if line.startswith("progress:")]
    read = [parse_progress(line) for line in lines]
    assert all(progress is not None for progress in read)
    elapsed = [progress.elapsed_s for progress in read if progress is not None]
    assert elapsed == sorted(elapsed)


@pytest.mark.parametrize("major", MAJORS)
def test_progress_holds_what_the_options_add(major: int) -> None:
    def first(name: str) -> Progress:
        found = parse_progress(next(line for line in Capture(major, name).stderr.split("\n") if "progress:" in line))
        assert found is not None
        return found

    assert first("extended").lag_average_ms is None
    assert first("extended").skipped_count is None
    assert first("rate").lag_average_ms is not None
    assert first("rate").skipped_count is None
    assert (first("rate-and-limit").skipped_count or 0) > 0
    assert (first("retries").retry_count or 0) >= (first("retries").retried_count or 0) > 0
    assert first("failures").failed_count > 0
    everything = first("everything")
    assert None not in msgspec.structs.astuple(everything)


@pytest.mark.parametrize("major", MAJORS)
def test_an_interval_without_transactions_has_no_latency(major: int) -> None:
    read = [parse_progress(line) for line in Capture(major, "stalled").stderr.split("\n")]
    stalled = [progress for progress in read if progress is not None]
    assert [progress.latency_average_ms is None for progress in stalled[:3]] == [True, True, False]
    assert stalled[0].tps == 0.0
    assert stalled[0].latency_stddev_ms is None


def test_a_spread_that_pgbench_could_not_compute_is_none() -> None:
    # Of one transaction, rounding can make the variance negative; pgbench 15 printed it so in its capture `stalled`.
    line = next(line for line in Capture(15, "stalled").stderr.split("\n") if "stddev NaN" in line)
    progress = parse_progress(line)
    assert progress is not None
    assert progress.latency_average_ms == pytest.approx(2503.566)
    assert progress.latency_stddev_ms is None


@given(
    elapsed=st.integers(0, 10**7),
    tps=st.integers(1, 10**8),
    ms=st.tuples(MS, MS, MS),
    counts=st.tuples(COUNT, COUNT, COUNT, COUNT),
    has=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_progress_is_read_as_printed(
    elapsed: int, tps: int, ms: tuple[float, ...], counts: tuple[int, ...], has: tuple[bool, ...]
) -> None:
    has_lag, has_limit, has_tries = has
    line = (
        f"progress: {elapsed / 10:.1f} s, {tps / 10:.1f} tps, lat {ms[0]:.3f} ms stddev {ms[1]:.3f}, {counts[0]} failed"
    )
    if has_lag:
        line += f", lag {ms[2]:.3f} ms" + (f", {counts[1]} skipped" if has_limit else "")
    if has_tries:
        line += f", {counts[2]} retried, {counts[3]} retries"
    assert parse_progress(line) == Progress(
        elapsed_s=elapsed / 10,
        tps=tps / 10,
        latency_average_ms=ms[0],
        latency_stddev_ms=ms[1],
        failed_count=counts[0],
        lag_average_ms=ms[2] if has_lag else None,
        skipped_count=counts[1] if has_lag and has_limit else None,
        retried_count=counts[2] if has_tries else None,
        retry_count=counts[3] if has_tries else None,
    )
    assert parse_progress(line[:-1]) is None
    assert parse_progress(f"{line} pgbench: error: client 1 aborted") is None


@given(st.text())
def test_no_text_breaks_the_progress_parser(text: str) -> None:
    progress = parse_progress(text)
    assert progress is None or math.isfinite(progress.tps)
