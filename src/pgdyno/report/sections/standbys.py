"""Build the section on the standbys: how far each lagged under each variant, what the load waited for, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pgdyno.analyse.estimate import mean_of_known
from pgdyno.analyse.replicas import compare_with_primary
from pgdyno.analyse.standbys import ClientWaits, Spread, Stage, StandbyFigures, StandbyLag, join_lags, join_waits
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.types import PartFigures, WorkloadAnalysis
from pgdyno.plan.standbys import with_synchronous_names
from pgdyno.plan.variants import list_specs, name_asked_settings
from pgdyno.record.types import why_missing
from pgdyno.report.document import Block, Prose, Section
from pgdyno.report.format import format_bytes, format_number, format_percent, format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.conditions.given_server import given_table
from pgdyno.report.table import Cell, Column, Table, absent, columns, number, text
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import name_standbys

_STAGES: Mapping[Stage, str] = {Stage.WRITE: "written", Stage.FLUSH: "flushed", Stage.REPLAY: "replayed"}
_NO_TIME = "nothing was written while it was sampled, and the server forgets the time"
_LAGS_REMARK = (
    "Means over samples once a second, and the largest of them, by pg_stat_replication: WAL that the server had written and the"
    " standby had not yet reported to have written, flushed or replayed, and the time from the server's flush to that report."
)
_WAITS_REMARK = (
    "Shares of the load's sessions, at the moments of the same samples. CPU: they ran, or were ready to. They are of few looks:"
    " trials of one variant each (design paired) show where the time goes with intervals."
)
_ON_ONE_MACHINE = "All servers share this machine's CPUs: CPU time spent on reading is not available to the primary."
_ELSEWHERE = (
    "Their machines are not seen: a replica may differ from the primary in its CPUs, memory, disks and network. Settings in this report"
    " are the primary's. Each trial began when they had replayed what the primary had written."
)
_LAGS = "pg_stat_replication"
_WAITS = (Resource.STANDBY, Resource.WAL_FLUSH, Resource.LOCK, Resource.CPU, Resource.CLIENT)


def build_standbys(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the standbys, or on the replicas of a given server; nothing where the study has none."""
    server = report.record.study.server
    if not server.readers:
        return
    count = server.standbys
    blocks: list[Block] = [Prose(words=_describe(report, count), level=Level.HEADLINE)] if count else []
    blocks += _describe_reading(report)
    by_load: dict[str, list[StandbyFigures]] = {}
    for workload in report.analysis.workloads:
        seen = [trial.standbys for trial in workload.trials if trial.standbys is not None]
        by_load.setdefault(workload.load.name, []).extend(seen)
    for name, figures in by_load.items():
        blocks += _make_tables(name if len(by_load) > 1 else "", figures)
    if not any(figures.lags for seen in by_load.values() for figures in seen):
        blocks.append(Prose(words=f"How far they lagged was not sampled{_say_why(report)}.", level=Level.HEADLINE))
    blocks += _list_differences(report)
    blocks += [given_table(one, name) for name, one in zip(server.readers, report.record.replicas, strict=False)]
    yield Section(
        title="Standbys" if count else "Replicas",
        id="standbys",
        blocks=tuple(blocks),
        level=Level.HEADLINE,
        is_listed=True,
    )


def _describe(report: ReportInput, count: int) -> str:
    names, is_one = join_names(name_standbys(count)), count == 1
    used = [
        cpu.cpus
        for workload in report.analysis.workloads
        # Where clients read there, its CPUs are theirs as well.
        if REPLICAS not in workload.load.endpoints
        for trial in workload.trials
        for cpu in (() if trial.standbys is None else trial.standbys.cpus)
        if cpu.cpus is not None
    ]
    # A mean over standbys and trials, for all standbys together.
    seen = report.record.usable_cpu_count
    of_machine = "" if seen is None else f" of {seen:g}"
    cpus = (
        f" ({format_number(count * sum(used) / len(used), digits=2)}{of_machine} CPUs over the load, which count as the study's own use and not"
        " as that of other programs)"
        if used
        else ""
    )
    return (
        f"{names} {'streams' if is_one else 'stream'} from the server on the same machine, and {'shares' if is_one else 'share'} its"
        f" CPUs{cpus} and its disk, whether or not commits wait. On {'a machine' if is_one else 'machines'} of"
        f" {'its' if is_one else 'their'} own, the server has these for itself, and each commit that waits also takes a round trip over"
        f" the network.{_say_filled(report)}"
    )


def _list_differences(report: ReportInput) -> Iterator[Block]:
    """Say in what the replicas of a given server differ from it, as far as SQL shows that."""
    primary, replicas = report.record.given, report.record.replicas
    # Older records have no settings.
    if primary is None or not replicas or any(one.settings is None for one in (primary, *replicas)):
        return
    asked = name_asked_settings(report.record.study)
    each = [{one.subject: one for one in compare_with_primary(seen, primary, asked=asked)} for seen in replicas]
    subjects = {subject: one.first for differences in each for subject, one in differences.items()}
    if not subjects:
        words = "In version, build and the settings that reading depends on, SQL shows no difference from the primary."
        yield Prose(words=words, level=Level.HEADLINE)
        return
    yield Table(
        caption="How replicas differ from the primary",
        columns=columns("", "Primary", *report.record.study.server.readers),
        rows=tuple(
            (
                text(subject),
                text(at_primary),
                *(text(seen[subject].other if subject in seen else "the same") for seen in each),
            )
            for subject, at_primary in subjects.items()
        ),
        remark="As one connection to each saw it before the first trial, in what reading depends on. Settings of extensions are left out.",
        level=Level.HEADLINE,
    )


def _say_why(report: ReportInput) -> str:
    gaps = (trial.record.gaps for trial in report.analysis.trials)
    reason = next((why for one in gaps if (why := why_missing(one, _LAGS)) is not None), None)
    return "" if reason is None else f": {reason}"


def _describe_reading(report: ReportInput) -> Iterator[Block]:
    """Say which loads read from the standbys, and what the clients at each of several did."""
    reading = [one for one in report.analysis.workloads if REPLICAS in one.load.endpoints]
    if not reading:
        return
    server = report.record.study.server
    places = [f" ({one.address})" for one in report.record.replicas] or [""] * server.standbys
    names = join_names([f"{name}{place}" for name, place in zip(server.readers, places, strict=True)])
    divided = ", among which the clients are divided evenly" if len(places) > 1 else ""
    where = _ELSEWHERE if server.replicas else _ON_ONE_MACHINE
    yield Prose(
        words=f"The clients of {join_names(_name_loads(report, reading))} read from {names}{divided}. {where} {_count_conflicts(reading)}",
        level=Level.HEADLINE,
    )
    # Those of a load in parts have a table of their own.
    rows = [row for workload in reading if not workload.load.parts for row in _list_reading_rows(workload)]
    if rows:
        titles = ("Load", "Standby", "Clients", "TPS", "p99")
        remark = "Means over trials; TPS and p99 are of the steady part of the whole load."
        yield Table(
            caption="What each standby served",
            columns=columns(*titles, numbers_from=2),
            rows=tuple(rows),
            remark=remark,
            level=Level.HEADLINE,
        )


def _name_loads(report: ReportInput, reading: Sequence[WorkloadAnalysis]) -> list[str]:
    """Name the loads that read from standbys; those that do so under some variants only, with these variants."""
    others = {one.load.name for one in report.analysis.workloads if REPLICAS not in one.load.endpoints}
    return list(dict.fromkeys(one.name if one.load.name in others else one.load.name for one in reading))


def _count_conflicts(reading: Sequence[WorkloadAnalysis]) -> str:
    grown = [trial.record.growth("conflicts_count") for workload in reading for trial in workload.trials]
    known = [count for count in grown if count is not None]
    if not known:
        return "Conflicts with replay were not counted."
    if not (total := round(sum(known))):
        return "Replay cancelled none of their queries."
    return (
        f"Replay cancelled {total:,} of their queries, because these needed rows that the server had removed:"
        " hot_standby_feedback makes it keep them, and a larger max_standby_streaming_delay lets replay wait longer."
    )


def _list_reading_rows(workload: WorkloadAnalysis) -> Iterator[tuple[Cell, ...]]:
    seen: dict[str, list[PartFigures]] = {}
    for trial in workload.trials:
        for part in trial.parts:
            seen.setdefault(part.name, []).append(part)
    for name, parts in seen.items():
        tps = mean_of_known(part.tps for part in parts)
        p99_ms = mean_of_known(one.value_ms for part in parts for one in part.percentiles if one.name == "p99")
        yield (
            text(workload.name),
            text(name),
            text(f"{parts[0].clients}"),
            number(tps, format_number, "its transactions could not be read"),
            text("" if p99_ms is None else format_seconds(p99_ms / 1000.0)),
        )


def _say_filled(report: ReportInput) -> str:
    study = report.record.study
    specs = [spec for spec, _ in list_specs(study)] if study.is_comparison else []
    if with_synchronous_names(study, specs) is study:
        return ""
    return " pgdyno set synchronous_standby_names = '*', since synchronous_commit asks for a standby and nothing said for which."


def _make_tables(load: str, figures: list[StandbyFigures]) -> Iterator[Table]:
    lags: dict[tuple[str, str], list[StandbyLag]] = {}
    waits: dict[str, list[ClientWaits]] = {}
    for one in figures:
        for lag in one.lags:
            lags.setdefault((lag.variant, lag.name), []).append(lag)
        for each in one.waits:
            waits.setdefault(each.variant, []).append(each)
    of = f" on {load}" if load else ""
    if lags:
        yield Table(
            caption=f"How far standbys lagged{of}",
            columns=_list_columns(),
            rows=tuple(_make_lag_row(join_lags(seen)) for seen in lags.values()),
            remark=_LAGS_REMARK,
            level=Level.HEADLINE,
        )
    if waits:
        titles = ("Variant", *(f"{resource.value}, %" for resource in _WAITS), "others, %", "Looks")
        yield Table(
            caption=f"What the load waited for{of}",
            columns=columns(*titles, numbers_from=1),
            rows=tuple(_make_wait_row(join_waits(seen)) for seen in waits.values()),
            remark=_WAITS_REMARK,
            level=Level.HEADLINE,
        )


def _list_columns() -> tuple[Column, ...]:
    sizes = {stage: f"Bytes not {words}" for stage, words in _STAGES.items()}
    times = {stage: f"Time until {words}, ms" for stage, words in _STAGES.items()}
    details = [of[stage] for of in (sizes, times) for stage in _STAGES if stage is not Stage.REPLAY]
    titles = ("Variant", "Standby", "State", "Synchronous", *sizes.values(), *times.values(), "Samples")
    return columns(*titles, numbers_from=4, details=details)


def _make_lag_row(lag: StandbyLag) -> tuple[Cell, ...]:
    samples = max((one.n for one in lag.lag_bytes.values()), default=0)
    return (
        text(lag.variant or "as it is"),
        text(lag.name),
        text(", ".join(lag.states)),
        text(", ".join(lag.sync_states)),
        *(_show_bytes(lag.lag_bytes.get(stage)) for stage in _STAGES),
        *(_show_ms(lag.lag_ms.get(stage)) for stage in _STAGES),
        text(f"{samples:,}"),
    )


def _show_bytes(seen: Spread | None) -> Cell:
    if seen is None:
        return absent("the standby reported no position")
    return Cell(text=format_bytes(round(seen.mean)), detail=f"up to {format_bytes(round(seen.largest))}")


def _show_ms(seen: Spread | None) -> Cell:
    if seen is None:
        return absent(_NO_TIME)
    return Cell(text=format_number(seen.mean), detail=f"up to {format_number(seen.largest)}")


def _make_wait_row(waits: ClientWaits) -> tuple[Cell, ...]:
    shown = [waits.ratios.get(resource, 0.0) for resource in _WAITS]
    others = sum(ratio for resource, ratio in waits.ratios.items() if resource not in _WAITS)
    return (
        text(waits.variant or "as it is"),
        *(text(format_percent(ratio).removesuffix(" %")) for ratio in (*shown, others)),
        text(f"{waits.looks:,}"),
    )
