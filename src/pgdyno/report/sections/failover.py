"""Build the section on failovers: how long the service was away under each variant, where that time went, and what was lost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.failover import PARTS, FailoverFigures, FailoverSummary, summarise_failovers
from pgdyno.plan.types import PlannedFailover
from pgdyno.record.types import TrialStatus
from pgdyno.report.document import Prose, Section
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.comparison.tables import estimate_cell
from pgdyno.report.table import Cell, Column, Table, absent, columns, text
from pgdyno.spec.failover import FailoverKind

_ENDS = {
    FailoverKind.CRASH: "all processes of the primary were killed at once (SIGKILL)",
    FailoverKind.STOP: "the primary was stopped in order (fast shutdown), which sends the standby all of its WAL",
}
_PARTS = {
    "noticed_s": "First error of a client",
    "ending_s": "Primary gone",
    "replay_s": "WAL replayed",
    "promotion_s": "Promoted",
    "first_write_s": "First write",
}
_OUTAGE_REMARK = (
    "From the last write that was confirmed before the primary ended to the first that was confirmed afterwards. The prober writes a"
    " row every 10 ms through libpq's list of hosts, and reconnects by itself. The load is pgbench, which ends with its connections: its"
    " time, from its log, includes the start of another one. Geometric means over failovers, with 95 % intervals. Lost are confirmed"
    " writes and transactions that the new primary does not have. Lost transactions of the load are a lower bound: each client may have"
    " lost one more, which was committed and not yet confirmed."
)
_PARTS_REMARK = (
    "These times overlap. First error and primary gone: since the primary was killed or told to stop. WAL replayed and promoted:"
    " since the standby's log has the request to promote. First write: from the standby's message that it takes connections to the"
    " prober's first confirmed write."
)
_NOT_SEEN = "the instants were not seen, or the machine was halted between them"
_UNCOUNTED = "its scripts do not leave one row of pgbench_history for each transaction"

_PARTLY_COUNTED = "the others could not be counted: pgbench or the new primary gave no number"


def build_failover(report: ReportInput) -> Iterator[Section]:
    """Yield the section on failovers; nothing where the study has none."""
    planned = next((one.failover for one in report.record.plan.workloads if one.failover is not None), None)
    if planned is None:
        return
    by_load: dict[str, list[tuple[FailoverFigures, int]]] = {}
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            if trial.failover is not None and trial.record.status is TrialStatus.FINISHED:
                by_load.setdefault(workload.name, []).append((trial.failover, trial.record.planned.round))
    seen = {name: summarise_failovers(failovers) for name, failovers in by_load.items()}
    blocks = [Prose(words=_describe(planned), level=Level.HEADLINE)]
    if not seen:
        blocks.append(Prose(words="No failover was measured.", level=Level.HEADLINE))
    tables = (_make_outages(seen), _make_parts(seen)) if seen else ()
    yield Section(title="Failover", id="failover", blocks=(*blocks, *tables), level=Level.HEADLINE, is_listed=True)


def _describe(planned: PlannedFailover) -> str:
    return (
        f"In each trial, after {format_seconds(planned.at_s)} of load {_ENDS[planned.kind]}, and the standby that had most of the WAL was"
        " asked at once to take over (pg_promote). A cluster manager first has to find out that the primary is gone: add that time."
    )


def _make_outages(seen: dict[str, FailoverSummary]) -> Table:
    return Table(
        caption="Time without service",
        columns=(
            Column(title="Load"),
            *columns("By the prober", "Its longest", "By the load", numbers_from=0),
            *columns("Lost writes of the prober", "Lost transactions", "Failovers with losses", numbers_from=0),
        ),
        rows=tuple(
            (
                text(name),
                _seconds(one, "outage_s"),
                text(None if one.longest_s is None else format_seconds(one.longest_s)),
                _seconds(one, "load_outage_s"),
                Cell(text=f"{one.lost_probes:,}", detail=f"of {one.confirmed_probes:,}", hue=_hue(one.lost_probes)),
                _make_transactions(one),
                Cell(text=f"{one.losing_failovers:,}", detail=f"of {one.failovers:,}"),
            )
            for name, one in seen.items()
        ),
        remark=_OUTAGE_REMARK,
        level=Level.HEADLINE,
    )


def _make_transactions(one: FailoverSummary) -> Cell:
    if one.lost_transactions is None:
        return absent(_UNCOUNTED)
    cell = Cell(text=f"{one.lost_transactions:,}", hue=_hue(one.lost_transactions))
    if one.counted_failovers == one.failovers:
        return cell
    return msgspec.structs.replace(
        cell, detail=f"counted in {one.counted_failovers:,} of {one.failovers:,} failovers", note=_PARTLY_COUNTED
    )


def _make_parts(seen: dict[str, FailoverSummary]) -> Table:
    return Table(
        caption="Where that time went",
        columns=(Column(title="Load"), *columns(*(_PARTS[name] for name in PARTS), numbers_from=0)),
        rows=tuple((text(name), *(_seconds(one, part) for part in PARTS)) for name, one in seen.items()),
        remark=_PARTS_REMARK,
        level=Level.HEADLINE,
    )


def _seconds(one: FailoverSummary, name: str) -> Cell:
    estimate = one.seconds.get(name)
    return absent(_NOT_SEEN) if estimate is None else estimate_cell(estimate)


def _hue(lost: int) -> str:
    return "critical" if lost else ""
