"""Build the index of published records: their answers with the conditions, and an audit of each.

Boards of benchmarks show the best of several runs and say nothing of how they came about. Here every figure has its
interval, the number of trials, the spread, the doubts, the durability that was given up and the limit beside it; and only what
answers one question shares a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.records.groups import GroupedSide
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.finding import Finding, Severity
from pgdyno.report.document import Block, Claims, Document, Prose, Section, Tone
from pgdyno.report.format import ABSENT, format_began, format_percent
from pgdyno.report.host_words import describe_named_machine
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.durability import find_durability_given_up, find_workload_losses
from pgdyno.report.sections.findings import list_findings, make_claim
from pgdyno.report.sections.head import describe_load, describe_settings, title_study
from pgdyno.report.sections.records.pairs import estimate_cell
from pgdyno.report.table import Cell, Table, absent, columns, text
from pgdyno.units import count_things

TITLE = "Published records"
_LEAD = (
    "Every figure is a mean over all trials of its load, never the best of several runs; “Trials” says how many there are. It has"
    " a 95 % interval; the number of trials stands in its place where that is too wide to be useful, or where there is only one"
    " trial. The reports have all trials, settings and evidence."
)
_REMARK = (
    "A table holds what answers one question: the same transactions, clients, data, durability and caches. Records in it"
    " were not measured in turn, so a difference between two of them is no verdict; the last column says in what else a"
    " load differs from the first of its table, and what weakens both alike. Spread is the standard deviation of TPS over trials, divided by their mean."
    " Doubts are findings that weaken the figures; “Audits” lists them for each record."
)


class PublishedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its report."""

    name: str
    page: str
    """The path of its report from the index."""
    report: ReportInput
    answers: tuple[str, ...]


def build_published(
    records: Sequence[PublishedRecord], groups: Sequence[Sequence[GroupedSide]], *, made_by: str
) -> Document:
    """Return the index of some records, and of the groups in which their loads may be compared."""
    blocks: list[Block] = [
        Prose(words=_LEAD, tone=Tone.LEAD),
        Section(title="Records", id="records", blocks=(_make_records_table(records),), is_listed=True),
    ]
    names = [group[0].side.load_name for group in groups]
    for number, group in enumerate(groups, start=1):
        is_alone = names.count(group[0].side.load_name) == 1
        blocks.append(_build_group(group, records, number, is_alone=is_alone))
    audits = tuple(_build_audit(record, number) for number, record in enumerate(records, start=1))
    blocks.append(Section(title="Audits", id="audits", blocks=audits, is_listed=True))
    remark = Prose(words=_REMARK)
    blocks.append(Section(title="How to read this page", id="how-to-read", blocks=(remark,), is_listed=True))
    return Document(title=TITLE, blocks=tuple(blocks), made_by=made_by)


def _make_records_table(records: Sequence[PublishedRecord]) -> Table:
    return Table(
        caption="Records",
        columns=columns("Record", "Began", "Machine", "PostgreSQL", "Answers", "Doubts", "Durability given up"),
        rows=tuple(_make_record_row(record) for record in records),
        is_captioned=False,
        is_sortable=True,
    )


def _make_record_row(published: PublishedRecord) -> tuple[Cell, ...]:
    record = published.report.record
    return (
        Cell(text=published.name, link=published.page),
        text(format_began(record.started_at)),
        text(describe_named_machine(record)),
        text(record.server.version.partition(" ")[0]),
        text("; ".join(published.answers)),
        _make_doubts_cell(published.report.findings),
        text(", ".join(find_durability_given_up(published.report)) or "nothing"),
    )


def _build_group(
    group: Sequence[GroupedSide], records: Sequence[PublishedRecord], number: int, *, is_alone: bool
) -> Section:
    first = group[0].side
    limit = "" if first.limit is None else f", highest rate for {first.limit}"
    lost = ", ".join(find_workload_losses(records[group[0].place].report, first.workload))
    table = Table(
        caption=f"{first.load_name}, {first.data_name}",
        columns=tuple(
            msgspec.structs.replace(column, is_number=column.title in {"TPS", "p99", "Trials", "Spread"})
            for column in columns(
                *("Record", "Settings", "TPS", "p99", "Trials", "Spread", "Limited by", "Doubts"),
                *("Durability given up", "PostgreSQL", "Machine", "Other differences"),
            )
        ),
        rows=tuple(_make_row(one, records[one.place]) for one in group),
        is_captioned=False,
        is_sortable=True,
    )
    title = f"{first.load_name}: {describe_load(first.load)}, {first.data_name}{limit}{f' ({lost})' if lost else ''}"
    return Section(
        title=title,
        id=f"group-{number}",
        blocks=(table,),
        is_listed=True,
        list_title=first.load_name if is_alone else "",
    )


def _make_row(grouped: GroupedSide, published: PublishedRecord) -> tuple[Cell, ...]:
    side, report = grouped.side, published.report
    p99 = side.workload.latency_ms.get("p99")
    spread = grouped.spread_ratio
    return (
        Cell(text=published.name, link=published.page),
        text(describe_settings(report) if side.variant is None else side.variant.name),
        msgspec.structs.replace(estimate_cell(side.workload.tps), order=side.workload.tps.value),
        absent("not observed") if p99 is None else msgspec.structs.replace(estimate_cell(p99), order=p99.value),
        Cell(text=str(len(side.trials)), order=len(side.trials)),
        absent("one trial") if spread is None else Cell(text=format_percent(spread), order=spread),
        text(_find_limit(report, side.workload)),
        _make_doubts_cell(_list_doubts(report, side.workload)),
        text(", ".join(find_workload_losses(report, side.workload)) or "nothing"),
        text(side.version),
        text(describe_named_machine(report.record)),
        text(_tell_differences(grouped)),
    )


def _tell_differences(grouped: GroupedSide) -> str:
    """Tell in what else a load differs from the first of its table, and what weakens both alike."""
    differing = dict.fromkeys(one.subject for one in grouped.declared if one.first != one.other)
    alike = dict.fromkeys(f"{one.subject} ({one.first})" for one in grouped.declared if one.first == one.other)
    return (", ".join(differing) or "nothing") + (f"; in both: {', '.join(alike)}" if alike else "")


def _find_limit(report: ReportInput, workload: WorkloadAnalysis) -> str:
    """Return what limited a load; the sign of absence where that is not known."""
    names = {workload.name, workload.load.name}
    found = [one.claim for one in report.explanations if one.rule == LIMITS and one.workload in names]
    return found[0] if found else ABSENT


def _list_doubts(report: ReportInput, workload: WorkloadAnalysis) -> list[Finding]:
    names = {None, workload.name, workload.load.name}
    return [one for one in report.findings if one.workload in names and not one.is_result]


def _make_doubts_cell(findings: Sequence[Finding]) -> Cell:
    """Return how many doubts there are, by severity; one claim counts once."""
    counts = {
        severity: len({one.claim for one in findings if one.severity is severity})
        for severity in (Severity.CRITICAL, Severity.WARNING)
    }
    words = ", ".join(
        f"{count} {severity.value}" if severity is Severity.CRITICAL else count_things(count, severity.value)
        for severity, count in counts.items()
        if count
    )
    # A critical doubt weighs more than any number of warnings.
    order = counts[Severity.CRITICAL] * 1000 + counts[Severity.WARNING]
    return Cell(text=words or "none", order=order)


def _build_audit(published: PublishedRecord, number: int) -> Section:
    return Section(
        title=published.name,
        sub=title_study(published.report.record),
        id=f"audit-{number}",
        blocks=tuple(_list_audit(published)),
        is_folded=True,
    )


def _list_audit(published: PublishedRecord) -> Iterator[Block]:
    report = published.report
    for words in published.answers:
        yield Prose(words=words, tone=Tone.CLAIM)
    yield Prose(
        strong="Began:", words=f"{format_began(report.record.started_at)}, on {describe_named_machine(report.record)}."
    )
    lost = find_durability_given_up(report)
    yield Prose(strong="Durability given up:", words=f"{', '.join(lost) or 'nothing'}.")
    limits = [one for one in report.explanations if one.rule == LIMITS]
    for one in limits:
        yield Prose(strong=f"{one.workload or 'All'}:", words=f"{one.claim} {one.evidence}")
    doubts = list_findings(report)
    if doubts:
        yield Claims(claims=tuple(make_claim(one) for one in doubts))
    else:
        yield Prose(words="Nothing was found that weakens the figures.")
