"""What the report says before its tables: headline, cards, durability, commands. Shared by every form.

Words only: nothing here lays out a page, and nothing is concluded that analysis or findings have not concluded.
"""

from __future__ import annotations

import shlex

import msgspec

from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.plan import Choice, PlannedWorkload
from pgdyno.record.types import TrialStatus
from pgdyno.report.format import (
    EstimateText,
    format_bytes,
    format_confidence,
    format_estimate,
    format_number,
    format_seconds,
    is_too_wide,
)
from pgdyno.report.input import ReportInput
from pgdyno.report.precision import WANTED_RATIO, count_trials_needed

HOW_TO_READ = """\
The trial is the unit: each starts from the same restored data and gives one number, and n counts trials, never seconds \
or transactions.
[low – high] is the 95 % confidence interval of the trials' geometric mean: how well this machine repeated itself; a \
number without one comes from a single trial.
One report measures and gives no verdict: two configurations are compared by trials of both in random order, never by \
laying two reports side by side.
TPS and latencies, their maximum too, are of the steady part of each trial: the beginning is left out by MSER-5, which \
cuts where what remains is known best. “pgbench says” is pgbench's own TPS over the whole load, so the two differ.
""".splitlines()
SIZES_REMARK = "kB, MB and GB are PostgreSQL's: powers of 1024."
# Source: PostgreSQL 18 manual, 19.5 and 29.1: each of these, when off, trades committed data or the cluster for speed.
_DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
_NAMED_WORKLOADS = 4
# Of pgbench's command line: where pgdyno's server is, the log that pgdyno reads, and what only pgbench 17 began to take.
_OWN_OPTIONS = frozenset(
    {"--host", "--port", "--username", "--log", "--log-prefix", "--sampling-rate", "--exit-on-abort"}
)
_OF = " of "


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's figures that everybody reads."""

    name: str
    load: str
    """Such as `8 clients, simple protocol`."""
    tps: EstimateText
    p99: EstimateText
    confidence: str
    durability: tuple[str, ...]


def describe_study(report: ReportInput) -> str:
    """The report's first sentence: what was measured on what."""
    record = report.record
    host = record.host
    workloads = record.plan.workloads
    names = _join([workload.name for workload in workloads])
    if len(workloads) > _NAMED_WORKLOADS:
        names = f"{len(workloads)} workloads"
    trials = record.study.trials
    times = "one trial" if trials.rounds == 1 else f"{trials.rounds} trials"
    each = "" if len(workloads) == 1 and trials.rounds == 1 else " each"
    clients = sorted({workload.clients for workload in workloads})
    by = f"{clients[0]:,}" if len(clients) == 1 else f"{clients[0]:,} to {clients[-1]:,}"
    disk = host.data_disk
    return (
        f"{names}: {times} of {format_seconds(trials.duration_s)}{each} by {by} pgbench"
        f" {'client' if clients[-1] == 1 else 'clients'} at scale {record.plan.scale:,},"
        f" on PostgreSQL {record.server.version} with {describe_settings(report)},"
        f" {_describe_cpus(host.usable_cpu_count)} ({host.cpu_model}),"
        f" {format_bytes(host.usable_memory_bytes)} of memory and data on {disk.filesystem}"
        f" ({disk.block_device or disk.device})."
    )


def describe_settings(report: ReportInput) -> str:
    """Whether anybody tuned the server."""
    count = len(report.record.study.server.settings)
    return f"{count} {'setting' if count == 1 else 'settings'} changed" if count else "default settings"


def describe_bench(report: ReportInput) -> str:
    """Server, machine and scale in a line."""
    record, host = report.record, report.record.host
    return (
        f"PostgreSQL {record.server.version.partition(' ')[0]}, {describe_settings(report)};"
        f" {_describe_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)} of memory,"
        f" {host.data_disk.filesystem} on {host.data_disk.block_device or host.data_disk.device};"
        f" scale {record.plan.scale:,}"
    )


def advise_trials(workload: WorkloadAnalysis) -> str | None:
    """How many trials would do, where those seen are too few for an interval that is of use."""
    if not is_too_wide(workload.tps):
        return None
    needed = count_trials_needed(workload.tps)
    if needed is None:
        return "These trials differ too much for more of them to help: look for what differs between them."
    return f"If others vary as these did, --rounds {needed} would give about ±{WANTED_RATIO * 100:.0f} %."


def title_report(report: ReportInput) -> str:
    """The report's title: the study's question, if it asks one."""
    return report.record.study.question or f"PostgreSQL {report.record.server.version} on the bench"


def find_durability_given_up(report: ReportInput) -> tuple[str, ...]:
    """Settings with which a crash may lose committed transactions or the cluster, as `fsync = off`."""
    given_up: dict[str, str] = {}
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            given_up |= {
                fact.name: fact.value for fact in trial.record.settings if is_durability_given_up(fact.name, fact.value)
            }
    for name, value in report.record.study.server.settings.items():
        shown = ("on" if value else "off") if isinstance(value, bool) else str(value)
        if is_durability_given_up(name, shown):
            given_up[name] = shown
    return tuple(f"{name} = {given_up[name]}" for name in _DURABILITY_SETTINGS if name in given_up)


def is_durability_given_up(name: str, value: str) -> bool:
    """Whether a setting's value gives up durability."""
    return name in _DURABILITY_SETTINGS and value.lower() in {"off", "false", "no", "0"}


def make_cards(report: ReportInput) -> tuple[Card, ...]:
    """One card for each workload."""
    durability = find_durability_given_up(report)
    return tuple(
        Card(
            name=workload.name,
            load=describe_load(report.record.plan.find_workload(workload.name)),
            tps=format_estimate(workload.tps),
            p99=format_estimate(workload.latency_ms["p99"]),
            confidence=format_confidence(workload.tps),
            durability=durability,
        )
        for workload in report.analysis.workloads
    )


def describe_load(workload: PlannedWorkload) -> str:
    """How a workload loads the server, in a line."""
    parts = [
        f"{workload.clients:,} {'client' if workload.clients == 1 else 'clients'}",
        f"{workload.mode.value} protocol",
    ]
    if workload.rate_tps is not None:
        parts.append(f"open loop at {format_number(workload.rate_tps)} tps")
    if workload.latency_limit_ms is not None:
        parts.append(f"limit {format_number(workload.latency_limit_ms)} ms")
    return ", ".join(parts)


class FindingText(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, once for all workloads that it holds for; none is the whole study."""

    severity: Severity
    """The worst of theirs."""
    claim: str
    evidence: tuple[str, ...]
    """A line for all workloads, or one for each with its name before it where they differ."""
    advice: str
    workloads: tuple[str, ...]


def list_findings(report: ReportInput) -> tuple[FindingText, ...]:
    """Findings, the gravest first; a claim that several workloads share is made once."""
    shared: dict[tuple[str, str], list[Finding]] = {}
    for severity in Severity:
        for finding in report.findings:
            if finding.severity is severity:
                shared.setdefault((finding.claim, finding.advice), []).append(finding)
    return tuple(
        FindingText(
            severity=findings[0].severity,
            claim=claim,
            evidence=_list_evidence(findings),
            advice=advice,
            workloads=_named(findings),
        )
        for (claim, advice), findings in shared.items()
    )


def list_choices(report: ReportInput) -> tuple[Choice, ...]:
    """What the study left open; what was chosen alike for several workloads is said once."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in report.record.plan.choices:
        name, _, workload = one.name.partition(_OF)
        alike.setdefault((name, one.value, one.reason), []).append(workload)
    return tuple(
        Choice(name=f"{name} ({', '.join(of)})" if any(of) else name, value=value, reason=reason)
        for (name, value, reason), of in alike.items()
    )


def name_trial(trial: TrialAnalysis) -> str:
    """What the report calls a trial: by its number in the order of running."""
    return f"trial {trial.record.planned.number}"


def describe_trial(trial: TrialAnalysis) -> str:
    """A trial in a line: its place, and its figures or why it has none."""
    where = f"round {trial.record.planned.round}"
    if trial.record.status is TrialStatus.FAILED:
        return f"{where}, failed: {trial.record.error.fact if trial.record.error else 'no reason recorded'}"
    parts = [where]
    if trial.tps is not None:
        parts.append(f"{format_number(trial.tps)} tps")
    parts += [
        f"p99 {format_number(p.value_ms)} ms" for p in trial.percentiles if p.name == "p99" and p.value_ms is not None
    ]
    return ", ".join(parts)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line and what it is for."""

    purpose: str
    line: str


def describe_repeating(report: ReportInput) -> str:
    """Where the study lies, and what was chosen for the machine where it had left something open."""
    where = "The study, with all that was asked for, is study.toml in the record."
    chosen = "; ".join(f"{one.name} = {one.value}" for one in list_choices(report))
    if not chosen:
        return where
    return (
        f"{where} What had been left open was chosen for this machine and is written in, so that it repeats the same"
        f" elsewhere: {chosen}."
    )


def list_commands(report: ReportInput) -> tuple[Command, ...]:
    """Commands to paste: to measure and to report again, and to load another server by hand as pgdyno loaded its own.

    The exact command lines, with places that are gone by now, stay in the record.
    """
    record = report.record
    program = next(iter(record.command), "pgdyno")
    commands = [
        Command(purpose="Measure again", line=shlex.join([program, "run", f"{report.record_dir}/study.toml"])),
        Command(purpose="Write this report again", line=shlex.join([program, "report", report.record_dir])),
        Command(purpose="What was typed", line=shlex.join(record.command)),
    ]
    if record.dataset is not None:
        line = _by_hand(record.dataset.init_argv)
        commands.append(
            Command(purpose="The same data in a database of your own, in place of its pgbench tables", line=line)
        )
    for workload in report.analysis.workloads:
        trial = workload.representative or next(iter(workload.trials), None)
        if trial is not None and trial.record.argv:
            folder = f"{report.record_dir}/trials/{trial.record.planned.number:04d}"
            purpose = f"The load of {workload.name} on it, as in {name_trial(trial)}"
            commands.append(Command(purpose=purpose, line=_by_hand(trial.record.argv, scripts_folder=folder)))
    return tuple(commands)


def _by_hand(argv: tuple[str, ...], scripts_folder: str = "") -> str:
    """A command line of pgbench without what is only pgdyno's: its server, its log, its copies of scripts."""
    *options, _ = argv[1:]
    kept = ["pgbench"]
    for option in options:
        name, _, value = option.partition("=")
        if name == "--file":
            kept.append(f"--file={scripts_folder}/{value.rpartition('/')[2]}")
        elif name not in _OWN_OPTIONS:
            kept.append(option)
    return shlex.join(kept)


def _describe_cpus(count: float) -> str:
    return f"{count:g} {'CPU' if count == 1 else 'CPUs'}"


def _named(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.workload for finding in findings if finding.workload is not None))


def _list_evidence(findings: list[Finding]) -> tuple[str, ...]:
    seen: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.evidence:
            seen.setdefault(finding.evidence, []).append(finding)
    if len(seen) <= 1:
        return tuple(seen)
    return tuple(": ".join(filter(None, (", ".join(_named(of)), evidence))) for evidence, of in seen.items())


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
