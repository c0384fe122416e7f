"""Build the beginning of a report: its first sentence, a card for each workload, and the durability that was given up.

Other sections use its functions to describe settings, loads and trials.

This module only words what analysis and findings have concluded; it lays out no page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from pgdyno.analyse.estimate import Estimate, is_too_wide, t_quantile
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.doubts.comparison import DURABILITY
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord, TrialStatus
from pgdyno.report.document import Block, Fact, Facts, Look, Prose, Section, Tone
from pgdyno.report.format import (
    EstimateText,
    format_bytes,
    format_confidence,
    format_cpus,
    format_estimate,
    format_number,
    format_seconds,
)
from pgdyno.report.host_words import after_name, describe_given, describe_load_host, describe_wal_disk
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.experiment import (
    count_servers,
    describe_experiment,
    list_clients,
    question_of,
)
from pgdyno.report.sections.conditions.emulated import build_emulated
from pgdyno.report.sections.disk.uses import describe_uses
from pgdyno.report.sections.durability import find_durability_given_up, list_durability_given_up
from pgdyno.report.sections.links import name_workload
from pgdyno.report.sections.predictions import describe_predictions
from pgdyno.spec.failover import FailoverKind
from pgdyno.units import count_things

MIXED_REMARK = (
    "Variants alternate within each of these trials, and the charts over time go up and down with them. TPS and"
    " latencies of a whole trial would be a mixture, so they are left out. There are no predictions: their inputs,"
    " such as the CPU time of a transaction, are counted for a trial as a whole."
)
SIZES_REMARK = "kB, MB and GB are powers of 1024, as in PostgreSQL; MB/s are powers of 1000, as of disks."
_NAMED_WORKLOADS = 4
_CLAIMS_SAID = 2
# Half the width of an interval that most questions need, as a share of the value.
_WANTED_RATIO = 0.1
# Beyond this number, more trials are not the remedy.
_MOST_TRIALS = 1000


def describe_study(report: ReportInput) -> str:
    """Describe what was measured, and on which machine, in a sentence."""
    record = report.record
    host = record.host
    workloads = record.plan.workloads
    names = join_names([workload.name for workload in workloads])
    if len(workloads) > _NAMED_WORKLOADS:
        names = f"{len(workloads)} workloads"
    experiment = record.plan.experiment
    how = (
        _describe_trials(report)
        if experiment is None
        else describe_experiment(experiment, record.study.trials, is_loading=workloads[0].is_loading)
    )
    measured = f"{names}: {how} by {_count_clients(report)} {_name_data(report)}"
    if host is None or record.given is not None:
        return f"{measured}, on {describe_given(record)}."
    servers = {1: f"PostgreSQL {record.server.version} with {describe_settings(report)}"}
    server_count = 1 if experiment is None else count_servers(experiment)
    disk = host.data_disk
    where = "" if host.host_name is None else f" on {host.host_name}"
    return (
        f"{measured}, on {servers.get(server_count, 'the PostgreSQL servers of the variants')}{where},"
        f" {format_cpus(host.usable_cpu_count)} ({host.cpu_name}),"
        f" {format_bytes(host.usable_memory_bytes)} of memory and data on {disk.filesystem}"
        f" ({disk.shown_device}){describe_wal_disk(report.record)}{describe_load_host(record)}."
    )


def _describe_trials(report: ReportInput) -> str:
    trials, search = report.record.study.trials, report.record.plan.search
    if search is not None:
        return f"{search.aim}, sought"
    times = "one trial" if trials.rounds == 1 else f"{trials.rounds} trials"
    each = "" if len(report.record.plan.workloads) == 1 and trials.rounds == 1 else " each"
    return f"{times} of {format_seconds(trials.duration_s)}{each}"


def _count_clients(report: ReportInput) -> str:
    clients = sorted(list_clients(report.record.plan))
    by = f"{clients[0]:,}" if len(clients) == 1 else f"{clients[0]:,} to {clients[-1]:,}"
    return f"{by} pgbench {'client' if clients[-1] == 1 else 'clients'}"


def _name_data(report: ReportInput) -> str:
    plan = report.record.plan
    if plan.data_name is not None:
        return f"on the data of {plan.data_name}"
    scales = (
        {plan.scale}
        if plan.experiment is None
        else {variant.scale or plan.scale for variant in plan.experiment.variants}
    )
    low, high = min(scales), max(scales)
    return f"at scale {low:,}" if low == high else f"at scales {low:,} to {high:,}"


def describe_settings(report: ReportInput) -> str:
    """State how many of the server's settings were changed."""
    count = len(report.record.study.server.settings)
    return f"{count_things(count, 'setting')} changed" if count else "default settings"


def describe_bench(report: ReportInput) -> str:
    """Describe server, machines and scale in a line."""
    record, host = report.record, report.record.host
    if host is None or record.given is not None:
        return f"{describe_given(record)}; {record.plan.data_words}"
    size = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)} of memory"
    return (
        f"PostgreSQL {record.server.version.partition(' ')[0]}, {describe_settings(report)}; {after_name(host, size)},"
        f" {host.data_disk.filesystem} on {host.data_disk.shown_device}{describe_wal_disk(record)}"
        f"{describe_load_host(record)}; {record.plan.data_words}"
    )


def advise_trials(workload: WorkloadAnalysis) -> str | None:
    """Say how many trials would give a useful interval, or that no number would; None where the interval is narrow enough.

    A comparison or a search gets no such advice: its stopping rule decides when it ends.
    """
    has_a_rule = any(trial.record.planned.variants or trial.record.planned.rate_tps for trial in workload.trials)
    if not is_too_wide(workload.tps) or has_a_rule:
        return None
    needed = count_trials_needed(workload.tps)
    if needed is None:
        return "These trials vary too much for more trials to help: find out what differs between them."
    return f"If further trials vary like these, {needed:,} rounds would give about ±{_WANTED_RATIO * 100:.0f} %."


def count_trials_needed(estimate: Estimate) -> int | None:
    """Return how many trials would narrow a geometric mean's interval to about ±10 %.

    None without an interval, and where more than a thousand would be needed.
    """
    if not estimate.low or estimate.high is None:
        return None

    def half_width(n: int) -> float:
        """Return half the width of Student's interval for a mean of n trials, in standard deviations of a trial."""
        return t_quantile(n - 1, (1 + estimate.confidence) / 2) / math.sqrt(n)

    sd = math.log(estimate.high / estimate.low) / 2 / half_width(estimate.n)
    return next((n for n in range(2, _MOST_TRIALS + 1) if sd * half_width(n) <= math.log1p(_WANTED_RATIO)), None)


def title_study(record: StudyRecord) -> str:
    """Return the question of a study, in its own words where it has some."""
    if record.study.question:
        return record.study.question
    if record.plan.experiment is not None:
        return question_of(record.plan.experiment)
    if record.plan.search is not None:
        return f"What is {record.plan.search.aim}?"
    return f"PostgreSQL {record.server.version} on the bench"


def build_head(report: ReportInput) -> Iterator[Block]:
    """Yield the first sentence, what was emulated, the warning about the figures, and the durability that was given up."""
    yield Prose(words=describe_study(report), brief=describe_bench(report), tone=Tone.LEAD, level=Level.HEADLINE)
    yield from build_emulated(report)
    losses = list_durability_given_up(report)
    if why := _say_why_not(report, told={DURABILITY} if losses else set()):
        yield Prose(words=f"These figures should not be used as they are. {why}", tone=Tone.ALARM, level=Level.HEADLINE)
    if losses:
        listed = "; ".join(f"{one.assignment}: {one.consequence}" for one in losses)
        yield Prose(
            strong="Durability given up:",
            words=f"{listed}. These figures are not those of a durable server.",
            brief=f"{', '.join(one.assignment for one in losses)}.",
            tone=Tone.ALARM,
            level=Level.HEADLINE,
        )


def _say_why_not(report: ReportInput, *, told: AbstractSet[str]) -> str:
    """Say why the figures should not be used as they are, but for the rules that are told apart; empty where they may be used."""
    claims = [*dict.fromkeys(one.claim for one in report.findings if one.spoils_figures and one.rule not in told)]
    left = len(claims) - _CLAIMS_SAID
    # One that is left over takes no more room than the words that would count it.
    said = claims if left <= 1 else [*claims[:_CLAIMS_SAID], f"“Measurement quality” has {left} more reasons."]
    return " ".join(said)


def build_cards(report: ReportInput) -> Iterator[Section]:
    """Yield the figures of each workload; nothing in a comparison or a search, where answers come first."""
    if report.record.plan.experiment is not None or report.record.plan.search is not None:
        return
    is_given_up = bool(find_durability_given_up(report))
    workloads = report.analysis.workloads
    cards = tuple(
        _make_card(name_workload(number), workload, is_given_up=is_given_up)
        for number, workload in enumerate(workloads, start=1)
    )
    confidence = format_confidence(workloads[0].tps) if workloads else ""
    idle = join_names([workload.name for workload in workloads if has_idle_trial(workload)])
    mean = f"Geometric mean (arithmetic of the TPS of {idle}, where a trial has 0)" if idle else "Geometric mean"
    remark = (
        f"{mean} over the trials, with its {confidence} interval in brackets; n is the number of trials."
        " p99: 99 of 100 transactions were faster."
    )
    yield Section(title="", list_title="Results", blocks=cards, look=Look.CARDS)
    yield Section(title="", blocks=(Prose(words=remark, tone=Tone.SMALL),))


def has_idle_trial(workload: WorkloadAnalysis) -> bool:
    """Return whether a trial of a workload has a TPS of 0, so that their mean is the arithmetic one."""
    return any(trial.tps == 0 and not trial.record.planned.is_observed for trial in workload.trials)


def _make_card(anchor: str, workload: WorkloadAnalysis, *, is_given_up: bool) -> Facts:
    said = (advise_trials(workload), *describe_uses(workload), describe_predictions(workload))
    latencies = [
        _make_fact(name, format_estimate(workload.latency_ms[name]), unit="ms") for name in ("p50", "p95", "p99")
    ]
    return Facts(
        title=workload.name,
        anchor=anchor,
        words=describe_load(workload.load),
        label="durability given up" if is_given_up else "",
        facts=(_make_fact("TPS", format_estimate(workload.tps)), *latencies),
        remarks=tuple(words for words in said if words),
    )


def _make_fact(name: str, shown: EstimateText, *, unit: str = "") -> Fact:
    if not shown.interval:
        return Fact(name=name, value=shown.value, doubt=shown.reason or "absent")
    doubt = f"{shown.interval}, {shown.n}" if shown.interval.startswith("[") else shown.interval
    return Fact(name=name, value=shown.value, unit=unit, doubt=doubt)


def describe_load(workload: PlannedWorkload) -> str:
    """Describe how a workload loads the server, in a line."""
    if workload.is_loading:
        return "`pgbench -i` into an empty database, by one client"
    parts = [
        count_things(workload.clients, "client"),
        f"{workload.mode.value} protocol",
    ]
    if workload.parts:
        parts.append(f"in parts: {join_names([part.words for part in workload.parts])}")
    if workload.rate_tps is not None and not workload.parts:
        parts.append(f"open loop at {format_number(workload.rate_tps)} tps")
    if workload.failover is not None:
        ends = "is killed" if workload.failover.kind is FailoverKind.CRASH else "stops"
        parts.append(f"until the primary {ends} after {format_seconds(workload.failover.at_s)}")
    if workload.latency_limit_ms is not None:
        parts.append(f"limit {format_number(workload.latency_limit_ms)} ms")
    return ", ".join(parts)


def is_mixed(trial: TrialAnalysis) -> bool:
    """Return whether several variants alternated in a trial, so that its totals are a mixture and no result."""
    return trial.record.planned.is_block


def name_trial(trial: TrialAnalysis) -> str:
    """Name a trial by its number in the order of running."""
    return f"trial {trial.record.planned.number}"


def describe_trial(trial: TrialAnalysis) -> str:
    """Describe a trial in a line: its round, and its figures or why it has none."""
    where = "only observed" if trial.record.planned.is_observed else f"round {trial.record.planned.round}"
    if trial.record.status is TrialStatus.FAILED:
        return f"{where}, failed: {trial.record.error.fact if trial.record.error else 'no reason recorded'}"
    parts = [where]
    if is_mixed(trial):
        return f"{where}, {len(trial.record.planned.variants)} variants alternate"
    if trial.init_s:
        parts.append(f"loaded in {format_seconds(trial.init_s['init_s'])}")
    if trial.failover is not None and trial.failover.outage_s is not None:
        parts.append(f"{format_seconds(trial.failover.outage_s)} without service")
    if trial.tps is not None:
        parts.append(f"{format_number(trial.tps)} tps")
    parts += [
        f"p99 {format_number(p.value_ms)} ms" for p in trial.percentiles if p.name == "p99" and p.value_ms is not None
    ]
    return ", ".join(parts)
