"""Say what each load host did, and what it can do at the most."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.estimate import mean_of_known
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.plan.types import apply_variant
from pgdyno.record.types import LoadHostFacts
from pgdyno.report.clock_words import format_offset
from pgdyno.report.format import format_bytes, format_cpus, format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.table import Cell, Table, columns, text
from pgdyno.spec.variant import LOAD_HOSTS
from pgdyno.units import count_things, format_share

_REMARK = (
    "Before the trials each load host sent empty statements, alone and as fast as it could: this is its maximum. An exchange is a"
    " statement that a client of the load sent, and the answer that it waited for. A thread that waits for a CPU counts as"
    " busy. Figures are means over trials, shares those of the highest trial."
)

_WAY = (
    "They reached pgdyno's own server over TCP, by a role that is no superuser, with a password and without encryption; pgdyno itself"
    " used a socket."
)


def load_hosts_table(report: ReportInput) -> Table | None:
    """Build the table of load hosts; None if the load came from the machine that pgdyno ran on."""
    hosts = report.record.load_hosts
    if not hosts:
        return None
    rows = [row for host in hosts for row in _list_rows(report, host)]
    titles = (
        "Host",
        "Workload",
        "Clients",
        "TPS",
        "p99",
        "Exchanges/s",
        "Of its maximum",
        "Busiest thread",
        "CPUs busy",
    )
    machines = "; ".join(_describe(host) for host in hosts)
    way = "" if report.record.given is not None else f" {_WAY}"
    return Table(
        caption="Load hosts",
        columns=columns(*titles, numbers_from=2),
        rows=tuple(rows),
        remark=f"{machines}.{way}{_describe_clocks(report)} {_REMARK}",
    )


def describe_load_room(report: ReportInput) -> str | None:
    """Say that no load host was the limit; None if one may have been, or if that is not known of one of them in a trial."""
    parts = [part for trial in report.analysis.trials for part in trial.generators]
    sent = [part.sent_ratio for part in parts if part.sent_ratio is not None]
    if not sent or len(sent) < len(parts) or max(sent) >= THRESHOLDS.full_generator_ratio:
        return None
    if any((part.thread_ratio or 0.0) >= THRESHOLDS.full_thread_ratio for part in parts):
        return None
    are_several = len({part.host for part in parts}) > 1
    what = "No load host was the limit: each sent" if are_several else "The load host was not the limit: it sent"
    return f"{what} at most {format_share(max(sent))} of the statements that it can send."


def list_load_proofs(report: ReportInput) -> Iterator[str]:
    """Yield what verdicts say of load hosts, where variants differ in their number and in nothing else."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return
    named, variants = len(report.record.load_hosts), experiment.list_differing_in(LOAD_HOSTS)
    for comparison, variant in itertools.product(report.analysis.comparisons, variants):
        question = comparison.find(variant.name, "tps")
        # At a rate TPS are given.
        if question is None or comparison.primary != "tps":
            continue
        workload = report.record.plan.find_workload(comparison.workload)
        loads = (apply_variant(workload, one) for one in (experiment.reference, variant))
        of_reference, hosts = (load.count_hosts(named) for load in loads)
        if hosts == of_reference:
            continue
        fewer, more = sorted((of_reference, hosts))
        does_more = VerdictKind.FASTER if hosts == more else VerdictKind.SLOWER
        if question.verdict.kind is VerdictKind.EQUIVALENT:
            yield f"{count_things(fewer, 'load host')} did as much as {more} on {comparison.workload}: load hosts were not its limit."
        elif question.verdict.kind is does_more:
            yield f"{count_things(fewer, 'load host')} limited {comparison.workload}: {more} did more."


def _list_rows(report: ReportInput, host: LoadHostFacts) -> Iterator[tuple[Cell, ...]]:
    for workload in report.analysis.workloads:
        parts = [part for trial in workload.trials for part in trial.generators if part.host == host.name]
        if not parts:
            continue
        sent_per_s = mean_of_known(part.sent_per_s for part in parts)
        p99_ms = mean_of_known(part.p99_ms for part in parts)
        yield (
            text(host.name),
            text(workload.name),
            text(f"{parts[0].clients}"),
            text(_show(mean_of_known(part.tps for part in parts))),
            text("" if p99_ms is None else format_seconds(p99_ms / 1000.0)),
            text(_show(sent_per_s)),
            text(_show_share(_most(part.sent_ratio for part in parts), host.empty_tps)),
            text(_show_share(_most(part.thread_ratio for part in parts))),
            text(_show_share(_most(part.machine_cpu_ratio for part in parts))),
        )


def _describe(host: LoadHostFacts) -> str:
    size = f"{format_cpus(host.facts.usable_cpu_count)}, {format_bytes(host.facts.usable_memory_bytes)}"
    same = ", the server's machine" if host.is_server_host else ""
    return (
        f"{host.name}: ssh {host.ssh}, {size}{same}, pgbench {host.version}, {host.empty_tps:,.0f} empty statements a second"
        f" from {host.empty_clients} clients; with one client a statement took {format_seconds(host.round_trip_s)}"
    )


def _describe_clocks(report: ReportInput) -> str:
    clocks = [
        (part.host, part.clock)
        for trial in report.analysis.trials
        for part in trial.generators
        if part.clock is not None
    ]
    if not clocks:
        return ""
    first = dict(reversed(clocks))
    ahead = "; ".join(
        f"{host.name} by {format_offset(first[host.name])}" for host in report.record.load_hosts if host.name in first
    )
    worst_s = max(clock.uncertainty_s for _, clock in clocks)
    return f" At first, clocks were ahead of pgdyno's: {ahead}. Times are off by {format_seconds(worst_s)} at the most."


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _show(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _show_share(ratio: float | None, whole: float | None = None) -> str:
    if ratio is None:
        return ""
    return format_share(ratio) if whole is None else f"{format_share(ratio)} of {whole:,.0f}"
