"""Parse what pgbench of PostgreSQL 15 to 18 prints about a load: its summary and its progress lines.

Every line is recognised by its label; a line with an unknown label is kept in `unknown_lines` and shown, never dropped.
Numbers keep pgbench's own units and digits. What pgbench prints as NaN, or leaves out, is None. Percentages are not
kept, because they follow from the counts.

Source: printResults, printProgressReport and printVersion of src/bin/pgbench/pgbench.c. PostgreSQL 18 split the line
of a script's transactions in two and counts skipped and failed ones in the first (`attempted_count`); 15 to 17 agree.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec


class StatementResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one command of a script (option -r of pgbench), identified by its first line."""

    text: str
    latency_average_ms: float | None
    """Mean latency to 1 us; None for an SQL command that pgbench prints as 0.000, because it never ran."""
    failure_count: int
    retry_count: int | None
    """Retries; None unless more than one try was allowed."""


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that pgbench prints both for the whole run and for each script."""

    transaction_count: int | None = None
    """Transactions that ran to their end: neither failed nor skipped."""
    failed_count: int | None = None
    """Transactions that failed in their last try, by serialization failure or deadlock; other errors end the client."""
    serialization_failure_count: int | None = None
    deadlock_failure_count: int | None = None
    retried_count: int | None = None
    """Transactions tried more than once. None unless more than one try was allowed."""
    retry_count: int | None = None
    skipped_count: int | None = None
    """Transactions not started because they were too late. None unless a rate and a latency limit were given."""
    latency_average_ms: float | None = None
    latency_stddev_ms: float | None = None
    tps: float | None = None
    statements: tuple[StatementResult, ...] = ()


class ScriptResult(_Counts, frozen=True, kw_only=True):
    """Results of one script, which pgbench prints when there are several.

    With several threads the counts are slightly low, because threads add to them without a lock.
    Source: processXactStats of src/bin/pgbench/pgbench.c, "could use a mutex here, but we choose not to".
    """

    number: int
    """Number of the script, from 1, in the order of the command line."""
    name: str
    """Path of the file as given, or `<builtin: ...>`."""
    weight: int | None = None
    attempted_count: int | None = None
    """Transactions including skipped and failed ones; printed since PostgreSQL 18."""


class PgbenchSummary(_Counts, frozen=True, kw_only=True):
    """The summary that pgbench prints on stdout. Statements are in `statements`, or in `scripts` if there are several."""

    pgbench_version: str | None = None
    server_version: str | None = None
    """None if it equals pgbench's version."""
    transaction_type: str | None = None
    scale: int | None = None
    """Scale; 1 for script files unless given, because pgbench counts branches only for its built-in scripts."""
    partition_method: str | None = None
    partition_count: int | None = None
    query_mode: str | None = None
    client_count: int | None = None
    thread_count: int | None = None
    max_tries_count: int | None = None
    """None means unlimited."""
    duration_s: float | None = None
    transactions_per_client_count: int | None = None
    planned_transaction_count: int | None = None
    latency_limit_ms: float | None = None
    above_limit_count: int | None = None
    latency_includes_failures: bool = False
    """True if the average latency was computed from the run time and includes failed transactions."""
    schedule_lag_average_ms: float | None = None
    schedule_lag_max_ms: float | None = None
    initial_connection_time_ms: float | None = None
    average_connection_time_ms: float | None = None
    """Time to connect, with a new connection for each transaction (-C); `tps` then includes connecting."""
    scripts: tuple[ScriptResult, ...] = ()
    unknown_lines: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """True if pgbench printed the whole first part of its summary."""
        return self.tps is not None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One interval of a running load, from a `progress:` line (option -P).

    Latencies are means over the interval; latencies and lag are None in an interval in which no transaction ended.
    """

    elapsed_s: float
    """Seconds since the load began."""
    tps: float
    latency_average_ms: float | None
    latency_stddev_ms: float | None
    failed_count: int
    lag_average_ms: float | None = None
    skipped_count: int | None = None
    retried_count: int | None = None
    retry_count: int | None = None
    has_silent_part: bool = False
    """Whether one of several pgbenches completed no transaction, such as one whose server hangs."""


# Spelled as PostgreSQL's own printf writes NaN and Infinity.
_NUMBER = r"(?:-?\d+(?:\.\d+)?|NaN|-?Infinity)"
_PERCENT = rf"\({_NUMBER}%\)"
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}

_COMMON_LINES = (
    rf"number of failed transactions: (?P<failed_count>\d+) {_PERCENT}",
    rf"number of serialization failures: (?P<serialization_failure_count>\d+) {_PERCENT}",
    rf"number of deadlock failures: (?P<deadlock_failure_count>\d+) {_PERCENT}",
    rf"number of transactions retried: (?P<retried_count>\d+) {_PERCENT}",
    r"total number of retries: (?P<retry_count>\d+)",
    rf"number of transactions skipped: (?P<skipped_count>\d+) {_PERCENT}",
    rf"latency average = (?P<latency_average_ms>{_NUMBER}) ms",
    rf"latency stddev = (?P<latency_stddev_ms>{_NUMBER}) ms",
)
_RUN_LINES = tuple(
    re.compile(pattern)
    for pattern in (
        *_COMMON_LINES,
        r"pgbench \((?P<pgbench_version>.+?)(?:, server (?P<server_version>.+))?\)",
        r"transaction type: (?P<transaction_type>.+)",
        r"scaling factor: (?P<scale>\d+)",
        r"partition method: (?P<partition_method>\w+)",
        r"partitions: (?P<partition_count>\d+)",
        r"query mode: (?P<query_mode>\w+)",
        r"number of clients: (?P<client_count>\d+)",
        r"number of threads: (?P<thread_count>\d+)",
        r"maximum number of tries: (?P<max_tries_count>\d+)",
        r"number of transactions per client: (?P<transactions_per_client_count>\d+)",
        r"duration: (?P<duration_s>\d+) s",
        r"number of transactions actually processed: (?P<transaction_count>\d+)(?:/(?P<planned_transaction_count>\d+))?",
        (
            rf"number of transactions above the (?P<latency_limit_ms>{_NUMBER}) ms latency limit:"
            rf" (?P<above_limit_count>\d+)/\d+ {_PERCENT}"
        ),
        rf"latency average = (?P<latency_average_ms>{_NUMBER}) ms(?P<latency_includes_failures> \(including failures\))",
        (
            rf"rate limit schedule lag: avg (?P<schedule_lag_average_ms>{_NUMBER})"
            rf" \(max (?P<schedule_lag_max_ms>{_NUMBER})\) ms"
        ),
        rf"average connection time = (?P<average_connection_time_ms>{_NUMBER}) ms",
        rf"initial connection time = (?P<initial_connection_time_ms>{_NUMBER}) ms",
        rf"tps = (?P<tps>{_NUMBER}) \((?:without initial connection time|including reconnection times)\)",
    )
)
_SCRIPT_LINES = tuple(
    re.compile(f" - {pattern}")
    for pattern in (
        *_COMMON_LINES,
        rf"weight: (?P<weight>\d+) \(targets {_NUMBER}% of total\)",
        rf"(?P<transaction_count>\d+) transactions \({_NUMBER}% of total, tps = (?P<tps>{_NUMBER})\)",
        rf"(?P<attempted_count>\d+) transactions \({_NUMBER}% of total\)",
        rf"number of transactions actually processed: (?P<transaction_count>\d+) \(tps = (?P<tps>{_NUMBER})\)",
    )
)
_SCRIPT_BEGIN = re.compile(r"SQL script (?P<number>\d+): (?P<name>.+)")
_STATEMENTS_BEGIN = re.compile(
    r"(?: - )?statement latencies in milliseconds(?P<columns> and failures|, failures and retries):"
)
_STATEMENT = re.compile(rf" +(?P<latency_average_ms>{_NUMBER}) +(?P<failure_count>\d+) +(?P<text>\S.*)")
_STATEMENT_WITH_RETRIES = re.compile(
    rf" +(?P<latency_average_ms>{_NUMBER}) +(?P<failure_count>\d+) +(?P<retry_count>\d+) +(?P<text>\S.*)"
)
# Seconds with one decimal: lines of --progress-timestamp have three and must not match.
_PROGRESS = re.compile(
    rf"progress: (?P<elapsed_s>\d+\.\d) s, (?P<tps>\d+\.\d) tps,"
    rf" lat (?P<latency_average_ms>{_NUMBER}) ms stddev (?P<latency_stddev_ms>{_NUMBER}), (?P<failed_count>\d+) failed"
    rf"(?:, lag (?P<lag_average_ms>{_NUMBER}) ms(?:, (?P<skipped_count>\d+) skipped)?)?"
    r"(?:, (?P<retried_count>\d+) retried, (?P<retry_count>\d+) retries)?"
)
_Result = TypeVar("_Result", PgbenchSummary, ScriptResult)


class _Section:
    """Lines parsed so far for the run or for one script."""

    def __init__(self, patterns: tuple[re.Pattern[str], ...], values: dict[str, str]) -> None:
        self.patterns = patterns
        self.values: dict[str, object] = dict(values)
        self.statements: list[StatementResult] = []
        self.statement_pattern: re.Pattern[str] | None = None

    def read(self, line: str) -> bool:
        """Parse a line by its label; return False if the label is unknown or was seen before."""
        if self.statement_pattern is not None:
            match = self.statement_pattern.fullmatch(line)
            if match is not None:
                self.statements.append(_parse_statement(match))
            return match is not None
        if begin := _STATEMENTS_BEGIN.fullmatch(line):
            has_retries = "retries" in begin["columns"]
            self.statement_pattern = _STATEMENT_WITH_RETRIES if has_retries else _STATEMENT
            return True
        for pattern in self.patterns:
            if match := pattern.fullmatch(line):
                found = {name: value for name, value in match.groupdict().items() if value is not None}
                if self.values.keys() & found.keys():
                    return False
                self.values |= found
                return True
        return False

    def build(self, kind: type[_Result], **more: object) -> _Result:
        """Convert the parsed values to their types."""
        values = {name: value for name, value in self.values.items() if value not in _NOT_FINITE}
        if "latency_includes_failures" in values:
            values["latency_includes_failures"] = True
        return msgspec.convert({**values, "statements": tuple(self.statements), **more}, kind, strict=False)


def parse_summary(text: str) -> PgbenchSummary:
    """Parse the stdout of a load.

    Args:
        text: The output, which may be incomplete; a last line without an end is kept as unknown.
    """
    *lines, rest = text.split("\n")
    run = section = _Section(_RUN_LINES, {})
    scripts: list[_Section] = []
    unknown: list[str] = []
    for line in filter(None, lines):
        if begin := _SCRIPT_BEGIN.fullmatch(line):
            section = _Section(_SCRIPT_LINES, begin.groupdict())
            scripts.append(section)
        elif not section.read(line):
            unknown.append(line)
    if rest:
        unknown.append(rest)
    return run.build(
        PgbenchSummary,
        scripts=tuple(script.build(ScriptResult) for script in scripts),
        unknown_lines=tuple(unknown),
    )


def _parse_statement(match: re.Match[str]) -> StatementResult:
    values: dict[str, object] = {"retry_count": None, **match.groupdict()}
    latency = match["latency_average_ms"]
    # pgbench prints 0.000 for a command that was not measured; only backslash commands can be that fast.
    never_ran = float(latency) == 0 and not match["text"].startswith("\\")
    if never_ran or latency in _NOT_FINITE:
        values["latency_average_ms"] = None
    return msgspec.convert(values, StatementResult, strict=False)


def parse_progress(line: str) -> Progress | None:
    """Parse one `progress:` line of stderr; return None for any other line."""
    match = _PROGRESS.fullmatch(line.rstrip("\n"))
    if match is None:
        return None
    values: dict[str, object] = {
        name: None if value in _NOT_FINITE else value for name, value in match.groupdict().items()
    }
    if float(match["tps"]) == 0 and float(match["latency_average_ms"]) == 0:
        # printProgressReport prints zeros if no transaction ended.
        values |= {"latency_average_ms": None, "latency_stddev_ms": None, "lag_average_ms": None}
    return msgspec.convert(values, Progress, strict=False)
