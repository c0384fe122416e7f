"""Build the tables of figures that DBAs quote: extremes and deviations of a trial, its course in steps, wait events, sizes of tables."""

from __future__ import annotations

from collections.abc import Callable

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.steps import choose_step_s, mean_by_step
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report.format import format_bytes, format_count, format_number, format_percent
from pgdyno.report.sections.head import name_trial
from pgdyno.report.sections.trials import choose_columns, title_trial
from pgdyno.report.table import Table, code, columns, number, text

_ROWS: dict[str, tuple[str, Callable[[float], str]]] = {
    "statements_per_s": ("Statements a second, BEGIN and END among them", format_number),
    "tps_with_connecting": ("TPS with connecting", format_number),
    "initial_connection_ms": ("Time to connect, ms", format_number),
    "lowest_second_tps": ("TPS in the slowest second", format_number),
    "highest_second_tps": ("TPS in the quickest second", format_number),
    "latency_stddev_ms": ("Standard deviation of latency, ms", format_number),
    "cpu_user_ratio": ("CPU in user mode", format_percent),
    "cpu_system_ratio": ("CPU in the kernel", format_percent),
    "cpu_iowait_ratio": ("CPU idle, waiting for I/O", format_percent),
    "memory_used_ratio": ("Memory in use", format_percent),
    "page_tables_bytes": ("Page tables of all processes", format_bytes),
    "huge_pages_count": ("Huge pages in the kernel's pool", format_count),
    "huge_pages_taken_count": ("Huge pages taken, by all programs", format_count),
    "reads_per_write": ("Reads of the data disk for each write", format_number),
    "read_bytes_per_written": ("Bytes read for each byte written", format_number),
}
_MOST_EVENTS = 15


def quoted_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of the figures that DBAs quote, a column for each trial; None if no trial has any."""
    trials, left_out = choose_columns(workload, [trial for trial in workload.trials if trial.quoted])
    rows = tuple(
        (text(label), *(number(trial.quoted.get(name), show, "not observed") for trial in trials))
        for name, (label, show) in _ROWS.items()
        if any(name in trial.quoted for trial in trials)
    )
    titles = columns("", *(title_trial(workload, trial) for trial in trials), numbers_from=1)
    remark = f"Of the whole load. No verdict rests on these.{f' {left_out}' if left_out else ''}"
    return Table(caption="Figures that are often quoted", columns=titles, rows=rows, remark=remark) if rows else None


def course_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of the mean TPS in each five seconds, trials side by side; None without whole steps."""
    lines = {
        trial.record.planned.number: line
        for trial in workload.trials
        for line in trial.charts.get(ChartKind.TPS, ())
        if line.t_s and trial.record.slice_s is None
    }
    # A trial that failed has no course, and one in slices or turns has none that is continuous.
    known = [trial for trial in workload.trials if trial.record.planned.number in lines]
    trials, remark = choose_columns(workload, known, what="every second of each")
    if not trials:
        return None
    step_s = choose_step_s(list(lines.values()))
    courses = [mean_by_step(lines[trial.record.planned.number], step_s) for trial in trials]
    count = max(map(len, courses))
    if count < 2:
        return None
    rows = tuple(
        (
            text(f"{step * step_s:g} to {(step + 1) * step_s:g} s"),
            *(number(course[step] if step < len(course) else None, format_number, None) for course in courses),
        )
        for step in range(count)
    )
    titles = columns("", *(title_trial(workload, trial) for trial in trials), numbers_from=1)
    return Table(caption=f"TPS in each interval of {step_s:g} s", columns=titles, rows=rows, remark=remark)


def waiting_table(trial: TrialAnalysis) -> Table | None:
    """Build the table of client sessions by wait event; None if they were not sampled."""
    shown = trial.waiting[:_MOST_EVENTS]
    total = sum(one.sessions for one in trial.waiting)
    if not shown:
        return None
    rows = tuple(
        (
            text(one.event),
            text(format_number(one.sessions)),
            text(format_percent(one.sessions / total)),
            text(format_number(one.most_sessions)),
        )
        for one in shown
    )
    titles = columns("Wait event", "Sessions, on average", "Share", "Most in a second", numbers_from=1)
    return Table(caption=f"Client sessions by wait event in {name_trial(trial)}", columns=titles, rows=rows)


def growth_table(trial: TrialAnalysis) -> Table | None:
    """Build the table of the load's tables, largest first: size before and after, growth, dead rows; None if none grew."""
    before = {one.name: one.bytes for one in trial.record.tables_before}
    after = sorted((one for one in trial.record.tables_after if one.name in before), key=lambda one: -one.bytes)
    if not any(one.bytes > before[one.name] for one in after):
        return None
    rows = tuple(
        (
            code(one.name),
            text(format_bytes(before[one.name])),
            text(format_bytes(one.bytes)),
            text(format_bytes(one.bytes - before[one.name])),
            text(format_count(one.dead_rows)),
        )
        for one in after
    )
    titles = columns("Table", "Before", "After", "Growth", "Dead rows after", numbers_from=1)
    remark = "With indexes. Dead rows are the server's estimate."
    return Table(caption=f"Tables in {name_trial(trial)}", columns=titles, rows=rows, remark=remark)
