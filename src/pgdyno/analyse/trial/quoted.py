"""Compute the figures of a trial that DBAs quote and that explain nothing by themselves.

They cover the whole measured load, as other benchmarks' figures do, and not only its steady part.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.types import WaitingSessions
from pgdyno.record.pgbench.output import PgbenchSummary
from pgdyno.record.samples import os_series
from pgdyno.record.samples.server_series import wait_events
from pgdyno.record.trial_data import TrialData

# Fewer sessions come from a few looks of a short trial.
_MIN_SESSIONS = 0.005
# Of fewer, the slowest and the quickest tell nothing of the others.
_MIN_SECONDS = 5


def measure_quoted(
    data: TrialData, *, tps: float | None, charts: dict[ChartKind, tuple[Series, ...]], device: str | None
) -> dict[str, float]:
    """Measure the quoted figures of a trial whose load ran in one piece; what was not observed is left out.

    Args:
        data: The trial's data.
        tps: Its TPS.
        charts: Its charts.
        device: Kernel name of the device that holds the data.

    Returns:
        statements_per_s (SQL statements, BEGIN and END among them), tps_with_connecting (with the time that pgbench
        took to connect), initial_connection_ms, latency_stddev_ms, lowest_second_tps and highest_second_tps (of the
        whole seconds), cpu_user_ratio, cpu_system_ratio and cpu_iowait_ratio, memory_used_ratio (not available to
        programs), page_tables_bytes, huge_pages_count and huge_pages_taken_count (where the kernel's pool has any; by all
        programs), reads_per_write (I/Os of the data disk) and read_bytes_per_written.
    """
    figures = {
        **_read_claims(data.pgbench, data.warm_up, tps),
        **_find_extremes(charts.get(ChartKind.TPS, ())),
        **_observe_machine(data, device),
    }
    return {name: value for name, value in figures.items() if value is not None}


def list_waiting_sessions(data: TrialData) -> tuple[WaitingSessions, ...]:
    """List the wait events of client sessions with their mean and highest number, most first; empty if they were not sampled."""
    if data.server is None:
        return ()
    found = [
        WaitingSessions(event=line.label, sessions=mean, most_sessions=float(data.within_load(line).max()))
        for line in wait_events(data.server)
        if (mean := data.mean_within_load(line)) is not None and mean >= _MIN_SESSIONS
    ]
    return tuple(sorted(found, key=lambda one: -one.sessions))


def _read_claims(
    summary: PgbenchSummary | None, warm_up: PgbenchSummary | None, tps: float | None
) -> dict[str, float | None]:
    if summary is None or not summary.is_complete:
        return {}
    each = _count_statements(summary, warm_up)
    connect_ms, count = summary.initial_connection_time_ms, summary.transaction_count
    with_connecting = None
    if connect_ms is not None and count and summary.tps:
        with_connecting = count / (count / summary.tps + connect_ms / 1000)
    return {
        "statements_per_s": None if each is None or tps is None else each * tps,
        "tps_with_connecting": with_connecting,
        "initial_connection_ms": connect_ms,
        "latency_stddev_ms": summary.latency_stddev_ms,
    }


def _count_statements(summary: PgbenchSummary, warm_up: PgbenchSummary | None) -> float | None:
    """Count the SQL statements of a transaction, which only the warm-up lists; of several scripts as often as each ran."""
    if warm_up is None:
        return None
    if not warm_up.scripts:
        return _count_sql([one.text for one in warm_up.statements])
    each = {script.number: _count_sql([one.text for one in script.statements]) for script in warm_up.scripts}
    ran = {script.number: script.transaction_count or 0 for script in summary.scripts}
    if not sum(ran.values()) or not ran.keys() <= each.keys() or None in each.values():
        return None
    return sum((each[number] or 0.0) * count for number, count in ran.items()) / sum(ran.values())


def _count_sql(texts: Sequence[str]) -> float | None:
    r"""Count the SQL statements of a script; None if there are none, or if a `\if` decides which of them run."""
    count = branches = 0
    for text in texts:
        # A command of pgbench's own begins with a backslash.
        if text.startswith("\\"):
            branches += (text.split()[0] == "\\if") - (text.split()[0] == "\\endif")
        elif branches:
            return None
        else:
            count += 1
    return float(count) or None


def _find_extremes(lines: Sequence[Series]) -> dict[str, float | None]:
    seen = [value for line in lines for value in line.values if value is not None]
    if len(seen) < _MIN_SECONDS:
        return {}
    return {"lowest_second_tps": min(seen, default=None), "highest_second_tps": max(seen, default=None)}


def _observe_machine(data: TrialData, device: str | None) -> dict[str, float | None]:
    samples = data.os
    if samples is None:
        return {}
    kinds = {line.label: data.mean_within_load(line) for line in os_series.cpu_shares(samples)}
    found = {f"cpu_{kind}_ratio": kinds.get(kind) for kind in ("user", "system", "iowait")}
    found["memory_used_ratio"] = data.mean_within_load(os_series.memory_used(samples))
    found["page_tables_bytes"] = data.mean_within_load(os_series.page_tables(samples))
    pool, taken = (data.mean_within_load(line) for line in os_series.huge_pages(samples))
    if pool:
        found |= {"huge_pages_count": pool, "huge_pages_taken_count": taken}
    if device is not None and device in os_series.list_disks(samples):
        lines = os_series.disk_series(samples, device)
        for name, read, write in (
            ("reads_per_write", "disk_read_iops", "disk_write_iops"),
            ("read_bytes_per_written", "disk_read_bytes_per_s", "disk_write_bytes_per_s"),
        ):
            reads, writes = (data.mean_within_load(lines[metric]) for metric in (read, write))
            found[name] = reads / writes if reads is not None and writes else None
    return found
