"""Put the sections of a study's report in order, once for all forms.

A new section is a module in `sections/` and a line here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.report.document import Block, Document, Prose, Section, Tone
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections import (
    context,
    evidence,
    failover,
    findings,
    first_page,
    head,
    layers,
    parts,
    poolers,
    reading,
    repeating,
    standbys,
    statements,
    workload,
)
from pgdyno.report.sections.comparison import section as comparison
from pgdyno.report.sections.comparison.method import describe_trials
from pgdyno.report.sections.conditions import burst
from pgdyno.report.sections.machine import build_machine
from pgdyno.report.sections.search import section as search
from pgdyno.report.sections.search.answers import TRIALS_REMARK as SEARCH_TRIALS_REMARK


def build_report(report: ReportInput) -> Document:
    """Return the report of a study."""
    return Document(
        title=head.title_study(report.record),
        blocks=tuple(_list_blocks(report)),
        made_by=f"pgdyno {report.record.tool_versions.get('pgdyno', '')}".rstrip(),
        made_at=report.record.started_at,
        place=report.record_dir,
        is_titled=False,
    )


def _list_blocks(report: ReportInput) -> Iterator[Block]:
    yield from head.build_head(report)
    yield from layers.build_gain(report)
    yield from comparison.build_verdicts(report)
    yield from comparison.build_sweep_verdicts(report)
    yield from search.build_answers(report)
    yield from failover.build_failover(report)
    yield from head.build_cards(report)
    yield from first_page.build_first_page(report)
    # Whoever reads the first page only has read the answer: how it came about follows.
    yield from parts.build_parts(report)
    yield from standbys.build_standbys(report)
    yield from poolers.build_poolers(report)
    yield from findings.build_findings(report)
    yield from comparison.build_comparisons(report)
    yield from comparison.build_sweep(report)
    yield from search.build_rate_trials(report)
    yield from comparison.build_method(report)
    yield from search.build_search_method(report)
    yield from _list_workloads(report)
    yield from statements.build_statements(report)
    yield from evidence.build_capacities(report)
    yield from burst.build_credits(report)
    yield from evidence.build_price(report)
    yield from context.build_dataset(report)
    yield from layers.build_derived(report)
    yield from context.build_settings(report)
    yield from build_machine(report)
    yield from repeating.build_repeating(report)
    yield from reading.build_reading(report)
    yield Prose(words="", brief=f"report: {report.record_dir}/report.html", level=Level.HEADLINE)


def _list_workloads(report: ReportInput) -> Iterator[Section]:
    workloads = tuple(workload.build_workloads(report))
    experiment = report.record.plan.experiment
    if experiment is None and report.record.plan.search is None:
        yield from workloads
        return
    remark = SEARCH_TRIALS_REMARK if experiment is None else describe_trials(experiment)
    blocks: tuple[Block, ...] = (Prose(words=remark, tone=Tone.SMALL), *workloads)
    yield Section(title="Trials", id="trials", blocks=blocks, is_listed=True)
