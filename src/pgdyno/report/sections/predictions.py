"""Describe what was predicted of a workload's trials and what they showed."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from pgdyno.analyse.prediction import DISTANCE, IMAGES, READS, TPS, JudgedPrediction
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.predictions import PredictionInput
from pgdyno.report.format import format_bytes, format_number, format_seconds
from pgdyno.report.table import Table, columns, number, text

_WORDS = {
    TPS: "TPS",
    READS: "blocks read, per transaction",
    IMAGES: "full-page images, per transaction",
    DISTANCE: "WAL between checkpoints",
}
REMARK = (
    "Models calculated these figures from measured inputs before each trial ran, without any TPS of earlier trials."
    " Each column has its own median over the trials."
)


def predictions_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of each predicted figure with its error; None where nothing was predicted."""
    rows = []
    for name, judged in _by_name(workload).items():
        shown: Callable[[float], str] = format_bytes if name == DISTANCE else format_number
        errors = [one.error_ratio for one in judged if one.error_ratio is not None]
        seen = [one.measured for one in judged if one.measured is not None]
        reason = next((one.reason for one in judged if one.reason is not None), None)
        rows.append(
            (
                text(_WORDS.get(name, name)),
                text(shown(median(one.prediction.value for one in judged))),
                number(median(seen) if seen else None, shown, reason),
                number(median(errors) if errors else None, format_error, reason),
                text(str(len(errors) or len(judged))),
                text(_describe(judged[-1])),
            )
        )
    titles = columns("", "predicted", "measured", "median of the trials' own errors", "trials", numbers_from=1)
    return (
        Table(caption="Predictions", columns=(*titles, *columns("from")), rows=tuple(rows), remark=REMARK)
        if rows
        else None
    )


def describe_predictions(workload: WorkloadAnalysis) -> str | None:
    """Describe the errors in a line: `predicted TPS were 4 % too high, blocks read 1 % too low`; None without any."""
    parts = []
    for name, judged in _by_name(workload).items():
        errors = [one.error_ratio for one in judged if one.error_ratio is not None]
        if errors:
            way = "too high" if median(errors) > 0 else "too low"
            size = f"{abs(median(errors)) * 100:.0f} % {way}" if abs(median(errors)) >= 0.005 else "right"
            parts.append(f"{_WORDS.get(name, name).partition(',')[0]} {size}")
    return f"predicted: {', '.join(parts)}" if parts else None


def format_error(ratio: float) -> str:
    """Format an error: `+4 %` was predicted too high."""
    percent = round(ratio * 100)
    return f"{percent:+,} %" if percent else "0 %"


def _by_name(workload: WorkloadAnalysis) -> dict[str, list[JudgedPrediction]]:
    found: dict[str, list[JudgedPrediction]] = {}
    for trial in workload.trials:
        for one in trial.predictions:
            found.setdefault(one.prediction.name, []).append(one)
    return found


def _describe(judged: JudgedPrediction) -> str:
    """Describe the model and its inputs."""
    inputs = "; ".join(f"{one.name} {_show(one)}" for one in judged.prediction.inputs)
    return f"{judged.prediction.model}: {inputs}"


def _show(one: PredictionInput) -> str:
    match one.unit:
        case "bytes":
            return format_bytes(one.value)
        case "s":
            return format_seconds(one.value)
        case "count" | "ratio":
            return f"{one.value:,.0f}" if one.value == round(one.value) else format_number(one.value)
        case unit:
            return f"{format_number(one.value)} {unit}"
