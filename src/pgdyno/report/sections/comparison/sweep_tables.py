"""Build the tables of a sweep over clients: each load's figures and status, and the law fitted to the curve."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.estimate import Estimate, map_estimate, scale_estimate
from pgdyno.analyse.sweep.knee import KNEE_RATIO
from pgdyno.analyse.sweep.scaling import ClientSweep, LoadPoint
from pgdyno.analyse.sweep.usl import UslFit
from pgdyno.report.format import ABSENT, format_clients, format_effect, format_estimate, format_number, is_useless
from pgdyno.report.level import Level
from pgdyno.report.sections.comparison.answers import WorkloadAnswers
from pgdyno.report.sections.comparison.curve import LevelCurve, SweepOutlook
from pgdyno.report.sections.comparison.tables import estimate_cell, figure_cell
from pgdyno.report.table import Cell, Column, Table, absent, columns, text
from pgdyno.report.verdict_words import STATUS_HUES, name_status


def loads_table(answers: WorkloadAnswers, sweep: ClientSweep, variants_by_clients: dict[int, str]) -> Table:
    """Build a row for each number of clients.

    Args:
        answers: The workload's answers.
        sweep: The workload's curve.
        variants_by_clients: The variant's name for each number of clients.
    """
    comparison = answers.comparison
    rows = []
    for point in sweep.points:
        variant = variants_by_clients.get(point.clients)
        latencies = [absent("not measured")] * 2 if variant is None else [
            figure_cell(comparison, variant, metric) for metric in ("latency_p50_ms", "latency_p99_ms")
        ]  # fmt: skip
        rows.append(
            (
                Cell(text=f"{point.clients:,}", tag=answers.variants[variant].tag if variant is not None else ""),
                _status_cell(point, answers.outlook),
                _tps_cell(point.tps),
                _tps_cell(_for_each_client(point)),
                _share_cell(point.efficiency),
                _best_cell(point),
                *latencies,
                text(str(point.tps.n)),
            )
        )
    titles = ("TPS", "TPS per client", "of one client alone", "TPS against the best", "p50", "p99", "Trials")
    return Table(
        caption="Results by number of clients",
        columns=(
            Column(title="Clients", is_number=True),
            Column(title="Status"),
            *columns(*titles, numbers_from=0),
        ),
        rows=tuple(rows),
        remark="The status rests on comparisons within rounds, as do the columns “of one client alone” and “TPS against the best”,"
        " where the best is the row with the most TPS in the trials. All statuses hold together; each interval holds for its row"
        " alone. The intervals of TPS, TPS per client and latencies also hold what rounds differ by.",
    )


def statuses_table(sweep: ClientSweep, outlook: SweepOutlook) -> Table:
    """Build the short table of a sweep: TPS, its place against the best, trials and status of each number of clients."""
    rows = tuple(
        (
            text(f"{point.clients:,}"),
            _tps_cell(point.tps),
            _short_best_cell(point),
            text(str(point.tps.n)),
            _status_cell(point, outlook),
        )
        for point in sweep.points
    )
    return Table(
        caption="TPS by number of clients",
        columns=(*columns("Clients", "TPS", "against the best", "Trials", numbers_from=0), Column(title="Status")),
        rows=rows,
        level=Level.HEADLINE,
        is_captioned=False,
    )


def levels_table(levels: Sequence[LevelCurve]) -> Table:
    """Build the table of a sweep over clients and something else: TPS of each number of clients at each level."""
    tps = {(one.level, point.clients): point.tps for one in levels for point in one.sweep.points}
    rows = tuple(
        (
            text(f"{clients:,}"),
            *(
                _tps_cell(tps[one.level, clients]) if (one.level, clients) in tps else absent("not measured")
                for one in levels
            ),
        )
        for clients in sorted({clients for _, clients in tps})
    )
    return Table(
        caption="TPS by number of clients",
        columns=columns("Clients", *(one.level for one in levels), numbers_from=0),
        rows=rows,
        level=Level.HEADLINE,
        is_captioned=False,
    )


def law_table(usl: UslFit) -> Table:
    """Build the table of the Universal Scalability Law's parameters."""
    rows = (
        ("lambda: TPS of one client", estimate_cell(usl.lambda_tps), "on the curve"),
        ("alpha: contention", _parameter_cell(usl.alpha), "share of the work that cannot run in parallel"),
        (
            "beta: coherency",
            _parameter_cell(usl.beta),
            "cost of coordination between each pair of clients; with 0, TPS never falls",
        ),
        ("knee", _clients_cell(usl.knee), f"the curve reaches {KNEE_RATIO * 100:g} % of the highest TPS on it"),
        ("peak", _clients_cell(usl.peak), "where TPS begins to fall"),
    )
    misfit = usl.lack_of_fit
    words = (
        f"the observed noise alone would put it as far away in {format_number(misfit.p_value * 100.0, digits=2)} of 100 cases"
        if misfit.p_value is not None
        else misfit.reason
    )
    remark = f"The load farthest from the curve has {misfit.largest_clients:,} clients; {words}."
    return Table(
        caption="Universal Scalability Law",
        columns=(Column(title=""), Column(title="Estimate", is_number=True), Column(title="Meaning")),
        rows=tuple((text(name), cell, text(meaning)) for name, cell, meaning in rows),
        remark=remark,
    )


def describe_law(sweep: ClientSweep) -> str:
    """State whether the peak comes from the law, and otherwise why not."""
    if sweep.points_alone_reason is None:
        return "The knee comes from the measured loads, the peak from the Universal Scalability Law, which fits them."
    return f"Knee and peak come from the measured loads alone: {sweep.points_alone_reason}."


def _tps_cell(estimate: Estimate) -> Cell:
    """Return a figure with its interval; for a single trial, say that it has none."""
    if estimate.value is None or estimate.low is not None:
        return estimate_cell(estimate)
    shown = format_estimate(estimate)
    return Cell(text=shown.value, detail=shown.beside)


def _for_each_client(point: LoadPoint) -> Estimate:
    return map_estimate(point.tps, lambda at: at / point.clients)


def _share_cell(estimate: Estimate) -> Cell:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return absent(estimate.reason)
    if estimate.low == estimate.high:
        return text("one client")
    shown = format_estimate(scale_estimate(estimate, 100.0))
    return Cell(text=f"{shown.value} %", detail=shown.beside)


def _short_best_cell(point: LoadPoint) -> Cell:
    """Return a cell of whole percentages, since more digits would not fit a terminal; a reason that the status has, too, is not repeated."""
    return text(ABSENT) if point.to_best.reason == point.reason is not None else _best_cell(point, most_decimals=0)


def _best_cell(point: LoadPoint, *, most_decimals: int = 2) -> Cell:
    best = point.to_best
    if best.value is None or best.low is None or best.high is None:
        return absent(best.reason)
    if best.low == best.high:
        return text("the best")
    shown = format_effect(best.value - 1, best.low - 1, best.high - 1, most_decimals=most_decimals)
    return Cell(text=shown.value, detail=shown.interval)


def _status_cell(point: LoadPoint, outlook: SweepOutlook) -> Cell:
    name = name_status(point.status)
    if point.status is None:
        note = "; ".join(filter(None, (point.reason, outlook.loads.get(point.clients))))
        return Cell(text=name, note=note, hue=STATUS_HUES[name])
    return Cell(text=name, is_strong=True, hue=STATUS_HUES[name])


def _parameter_cell(estimate: Estimate) -> Cell:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return absent(estimate.reason)
    shown = format_estimate(estimate)
    if shown.interval.startswith("[") or is_useless(estimate):
        return Cell(text=shown.value, detail=shown.beside)
    low, high = (format_number(end, digits=2) for end in (estimate.low, estimate.high))
    return Cell(text=format_number(estimate.value, digits=2), detail=f"[{low} – {high}]")


def _clients_cell(estimate: Estimate) -> Cell:
    if estimate.value is None or estimate.low is None:
        return Cell(text=ABSENT, note=estimate.reason)
    value, _, interval = format_clients(estimate).partition(" [")
    return Cell(text=value, detail=f"[{interval}", note=estimate.reason)
