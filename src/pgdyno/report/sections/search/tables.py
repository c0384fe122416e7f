"""Build the tables of a search: every rate with its verdict, and every trial with its share over the limit."""

from __future__ import annotations

from pgdyno.analyse.estimate import Estimate, scale_estimate
from pgdyno.analyse.search.rate_search import RateLevel, RateSearch, RateTrial
from pgdyno.plan.search import Search
from pgdyno.report.charts.search import RATE_HUES
from pgdyno.report.format import format_count, format_estimate, format_number, format_percent, format_share_exactly
from pgdyno.report.level import Level
from pgdyno.report.sections.search.answers import MARKS
from pgdyno.report.table import Cell, Column, Table, absent, columns, number, text

_HALVES = " In a mean of several trials, one in which none missed counts as half a transaction."


def rates_table(search: RateSearch, asked: Search) -> Table:
    """Build a row for each rate that was tried."""
    percentile = f"p{asked.percentile:g}"
    rows = tuple(
        (
            text(format_number(level.rate_tps)),
            Cell(text=f"{MARKS[level.verdict]} {level.verdict.value}", is_strong=True, hue=RATE_HUES[level.verdict]),
            text(f"{level.held_count} of {len(level.trials)}"),
            _share_cell(level.share),
            _latency_cell(level),
        )
        for level in search.levels
    )
    return Table(
        caption="Results by rate",
        columns=(
            Column(title="TPS scheduled", is_number=True),
            Column(title="Verdict"),
            *columns("Trials that held", "Missed", numbers_from=0),
            Column(title=f"{percentile}, ms", is_number=True, level=Level.STANDARD),
        ),
        rows=rows,
        remark=(
            f"{asked.limit}: at most {format_share_exactly(asked.allowed_ratio)} of the scheduled transactions may exceed"
            " it. A verdict also uses trials at other rates: a limit that holds at one rate holds at every lower"
            f" rate. Missed and {percentile} are geometric means over trials, with their own intervals; the verdicts"
            f" do not use them.{_HALVES if _has_halves(search) else ''}"
        ),
    )


def trials_table(search: RateSearch, asked: Search) -> Table:
    """Build a row for each trial at a rate, in the order of running."""
    trials = sorted((trial for level in search.levels for trial in level.trials), key=lambda trial: trial.number)
    titles = ("Late", "Skipped", "Failed", "Never started", "Missed", f"p{asked.percentile:g}, ms")
    return Table(
        caption="Trials by rate",
        columns=(
            *columns("Trial", "TPS scheduled", "Scheduled", *titles, numbers_from=1),
            Column(title="Limit"),
        ),
        rows=tuple(_trial_row(trial) for trial in trials),
        remark=(
            "Scheduled: all transactions that should have run. Skipped: too late already when a client was free for them. Never"
            " started: still waiting for a free client when the load ended."
        ),
    )


def _trial_row(trial: RateTrial) -> tuple[Cell, ...]:
    misses = trial.misses
    counts = (
        misses.scheduled_count,
        misses.late_count,
        misses.skipped_count,
        misses.failed_count,
        misses.unbegun_count,
    )
    return (
        text(f"trial {trial.number}"),
        text(format_number(misses.rate_tps)),
        *(text(format_count(count)) for count in counts),
        text(format_percent(misses.share_ratio)),
        number(misses.latency_ms, format_number, misses.latency_reason),
        text("held" if trial.is_held else "not held"),
    )


def _has_halves(search: RateSearch) -> bool:
    """Return whether a rate has trials in which none missed beside others."""
    return any(
        level.share.value and not all(one.misses.missed_count for one in level.trials) for level in search.levels
    )


def _share_cell(share: Estimate) -> Cell:
    shown = format_estimate(scale_estimate(share, 100.0))
    if share.low is None:
        return Cell(text=f"{shown.value} %", note=shown.reason)
    return Cell(text=f"{shown.value} %", detail=shown.beside)


def _latency_cell(level: RateLevel) -> Cell:
    latency = level.latency_ms
    if latency.value is None:
        return absent(latency.reason)
    shown = format_estimate(latency)
    if latency.low is None:
        return Cell(text=shown.value, note=shown.reason)
    return Cell(text=shown.value, detail=shown.beside, note=shown.reason)
