"""Parse the stderr of `pgbench -i` of PostgreSQL 15 to 18: its steps, the rows loaded so far, the time of each step.

The parser does not judge whether loading was fast. A step that pgbench does not name gets no time.
"""

from __future__ import annotations

import re

import msgspec

# Source: initDropTables, initCreateTables, createPartitions, initGenerateData*, initVacuum, initCreatePKeys and
# initCreateFKeys of src/bin/pgbench/pgbench.c, the same in 15 to 18; the values are runInitSteps' names of the steps.
_STEP_ANNOUNCEMENTS = {
    "dropping old tables...": "drop tables",
    "creating tables...": "create tables",
    "generating data (client-side)...": "client-side generate",
    "generating data (server-side)...": "server-side generate",
    "vacuuming...": "vacuum",
    "creating primary keys...": "primary keys",
    "creating foreign keys...": "foreign keys",
}
_METRICS = {
    "drop tables": "init_tables_s",
    "create tables": "init_tables_s",
    "client-side generate": "init_generate_s",
    "server-side generate": "init_generate_s",
    "vacuum": "init_vacuum_s",
    "primary keys": "init_primary_keys_s",
    "foreign keys": "init_foreign_keys_s",
}
_PARTITIONS = re.compile(r"creating \d+ partitions\.\.\.")
# The table's name is printed since PostgreSQL 17.
_ROWS = re.compile(
    r"(?P<row_count>\d+) of (?P<total_row_count>\d+) tuples \(\d+%\)(?: of (?P<table>\S+))? done"
    r" \(elapsed (?P<elapsed_s>\d+\.\d+) s, remaining (?P<remaining_s>\d+\.\d+) s\)"
)
_DONE = re.compile(r"done in (?P<total_s>\d+\.\d+) s \((?P<steps>[^()]*)\)\.")
_STEP_TIME = re.compile(r"(?P<name>\D+) (?P<duration_s>\d+\.\d+) s")


class InitStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of loading by pgbench's own name, such as `client-side generate`, with its time to 10 ms."""

    name: str
    duration_s: float


class InitSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps in the order in which they ran; a step that was requested twice appears twice."""

    total_s: float
    steps: tuple[InitStep, ...]

    @property
    def metrics_s(self) -> dict[str, float]:
        """Seconds of the whole and of each step that ran, by the metrics' names."""
        by_metric = {"init_s": self.total_s}
        for step in self.steps:
            metric = _METRICS[step.name]
            by_metric[metric] = by_metric.get(metric, 0.0) + step.duration_s
        return by_metric

    @property
    def step_durations_s(self) -> dict[str, float]:
        """Seconds by name of the step; the sum for a step that ran more than once."""
        durations_s: dict[str, float] = {}
        for step in self.steps:
            durations_s[step.name] = durations_s.get(step.name, 0.0) + step.duration_s
        return durations_s


class InitProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of loading: a step that began, or rows of client-side generation.

    Rows are those that pgbench has sent. An error of the server (disk full) appears only after the last row.
    """

    step: str
    table: str | None = None
    """The table being filled; None for the beginning of a step, and before PostgreSQL 17 (always pgbench_accounts)."""
    row_count: int | None = None
    total_row_count: int | None = None
    elapsed_s: float | None = None
    remaining_s: float | None = None
    """pgbench's own estimate for this table."""

    @property
    def percent(self) -> float | None:
        """Percentage of the table's rows that are sent; None for the beginning of a step."""
        if self.row_count is None or not self.total_row_count:
            return None
        return 100.0 * self.row_count / self.total_row_count


def parse_init(text: str) -> InitSteps | None:
    """Parse the times of all steps from the stderr of a successful `pgbench -i`; return None without such a line."""
    done = [match for line in split_lines(text) if (match := _DONE.fullmatch(line))]
    if not done:
        return None
    steps = [_STEP_TIME.fullmatch(part) for part in done[-1]["steps"].split(", ")]
    return InitSteps(
        total_s=float(done[-1]["total_s"]),
        steps=tuple(InitStep(name=step["name"], duration_s=float(step["duration_s"])) for step in steps if step),
    )


def parse_init_progress(line: str) -> InitProgress | None:
    r"""Parse one progress line of `pgbench -i`; return None for any other line.

    Args:
        line: One line, or one part of a line that `\r` overwrites on a terminal; see `split_lines`.
    """
    line = line.strip()
    if (step := _STEP_ANNOUNCEMENTS.get(line)) is not None:
        return InitProgress(step=step)
    if _PARTITIONS.fullmatch(line):
        return InitProgress(step="create partitions")
    match = _ROWS.fullmatch(line)
    if match is None:
        return None
    return msgspec.convert({"step": "client-side generate", **match.groupdict()}, InitProgress, strict=False)


def is_init_line(line: str) -> bool:
    """Return whether a line is part of the output of successful loading."""
    return parse_init_progress(line) is not None or _DONE.fullmatch(line.strip()) is not None


def split_lines(text: str) -> list[str]:
    r"""Split pgbench's stderr into lines without blank ones; `\r`, which overwrites progress on a terminal, ends a line too."""
    return [line for line in re.split(r"[\r\n]", text) if line.strip()]
