"""Build the section on the parts of loads: what each did beside the others."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.types import PartAnalysis, WorkloadAnalysis
from pgdyno.plan.types import PlannedPart, PlannedWorkload
from pgdyno.report.document import Block, Prose, Section
from pgdyno.report.format import format_estimate, format_number
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.tables import estimate_cell
from pgdyno.report.table import Cell, Table, absent, columns, text
from pgdyno.units import count_things, sum_if_known

_LATENCIES = ("mean", "p50", "p95", "p99")
_IN_ALL = "all parts"
_REMARK = (
    "All parts begin at one instant and end at one instant. TPS and latencies are of the steady part of the whole load, so that the TPS of the parts add"
    " up to the whole's in each trial. Intervals are over trials."
)


def build_parts(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the parts of loads; nothing where no load has parts."""
    loads = [load for load in report.record.plan.workloads if load.parts]
    if not loads:
        return
    named = len(report.record.load_hosts)
    blocks: list[Block] = [Prose(words=_describe(load, named), level=Level.HEADLINE) for load in loads]
    measured = [workload for workload in report.analysis.workloads if workload.parts and workload.load.parts]
    has_failed = any(part.failed_count for workload in measured for part in workload.parts)
    rows = [row for workload in measured for row in _list_rows(workload, has_failed=has_failed)]
    if rows:
        titles = ("Load", "Part", "Clients", "TPS", *_LATENCIES, *["Failed"] * has_failed)
        blocks.append(
            Table(
                caption="What each part did",
                columns=columns(*titles, numbers_from=2, details=("mean", "p50")),
                rows=tuple(rows),
                remark=_REMARK,
                level=Level.HEADLINE,
            )
        )
    yield Section(title="Parts", id="parts", blocks=tuple(blocks), level=Level.HEADLINE, is_listed=True)


def _describe(load: PlannedWorkload, named: int) -> str:
    hosts = f" from {count_things(load.count_hosts(named), 'load host')}" if named else ""
    return f"{load.name} is {join_names(map(_describe_part, load.parts))}, side by side as one load{hosts}."


def _describe_part(part: PlannedPart) -> str:
    clients = count_things(part.clients, "client")
    scripts = " + ".join(name.rpartition("/")[2] for name, _ in part.scripts)
    of = part.name if scripts == part.name else f"{part.name} ({scripts})"
    rate = "" if part.rate_tps is None else f", scheduled at {format_number(part.rate_tps)} tps,"
    return f"{of} with {clients}{rate} at the {part.endpoint}"


def _list_rows(workload: WorkloadAnalysis, *, has_failed: bool) -> Iterator[tuple[Cell, ...]]:
    for part in workload.parts:
        row = _make_row(workload, _name(part), part.clients, part.tps, part.latency_ms)
        yield (*row, *[_count(part.failed_count)] * has_failed)
    row = _make_row(workload, _IN_ALL, workload.load.clients, workload.tps, workload.latency_ms)
    failed = sum_if_known([part.failed_count for part in workload.parts])
    yield (*row, *[_count(failed)] * has_failed)


def _name(part: PartAnalysis) -> str:
    return f"{part.name} at {join_names(dict.fromkeys(part.endpoints))}"


def _make_row(
    workload: WorkloadAnalysis, name: str, clients: int, tps: Estimate, latency_ms: dict[str, Estimate]
) -> tuple[Cell, ...]:
    return (
        text(workload.name),
        text(name),
        text(f"{clients:,}"),
        _show(tps),
        *(_show(latency_ms.get(each)) for each in _LATENCIES),
    )


def _show(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.value is None or estimate.low is not None:
        return absent("its transactions could not be read") if estimate is None else estimate_cell(estimate)
    # One trial has a value and no interval.
    unit = "" if estimate.unit == "tps" else f" {estimate.unit}"
    return Cell(text=f"{format_estimate(estimate).value}{unit}", note=estimate.reason)


def _count(failed: int | None) -> Cell:
    return absent("pgbench did not report it") if failed is None else text(f"{failed:,}")
