"""Draw a workload's trials as one line of dots, which shows how well the machine repeated itself."""

from __future__ import annotations

from typing import Any

from pgdyno.analyse.estimate import is_too_wide
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report.charts.chart import CONFIG, Chart, colour_of
from pgdyno.report.format import format_confidence, format_number


def strip_chart(workload: WorkloadAnalysis) -> Chart | None:
    """Draw every trial's TPS above the mean with its interval if that is of use; None for fewer than two finished trials."""
    trials = [
        (trial.record.planned.number, trial.tps)
        for trial in workload.trials
        if trial.tps is not None and not trial.record.planned.is_observed
    ]
    if len(trials) < 2:
        return None
    estimate = workload.tps
    x = {"type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": {"title": None, "tickCount": 5}}
    layers: list[dict[str, Any]] = []
    # A useless interval would squeeze the dots together.
    has_span = estimate.low is not None and not is_too_wide(estimate)
    if has_span:
        layers.append(
            {
                "data": {"name": "spans"},
                "mark": {"type": "bar", "height": 10, "color": colour_of("blue"), "opacity": 0.28},
                "encoding": {"x": {"field": "from", **x}, "x2": {"field": "until"}, "y": {"value": 34}},
            }
        )
    layers += [
        {
            "data": {"name": "moments"},
            "mark": {"type": "tick", "orient": "vertical", "size": 18, "thickness": 2, "color": colour_of("blue")},
            "encoding": {"x": {"field": "at", **x}, "y": {"value": 34}},
        },
        {
            "data": {"name": "series"},
            "mark": {"type": "circle", "size": 64, "color": colour_of("ink"), "opacity": 0.75},
            "encoding": {"x": {"field": "t", **x}, "y": {"value": 14}},
        },
    ]
    bar = f", the bar its {format_confidence(estimate)} interval" if has_span else ""
    values = ", ".join(f"{format_number(tps)} (trial {number})" for number, tps in trials)
    return Chart(
        kind="strip",
        title="TPS of each trial",
        unit="tps",
        alt=f"TPS of {len(trials)} trials: {values}.",
        caption=f"Dots are trials, the line is their mean{bar}.",
        spec={"width": "container", "height": 48, "layer": layers, "config": CONFIG},
        columns=({"t": [tps for _, tps in trials]},),
        marks={
            "spans": [{"from": estimate.low, "until": estimate.high}] if has_span else [],
            "moments": [{"at": estimate.value}] if estimate.value is not None else [],
        },
    )
