"""Draw records side by side: each trial's TPS as a dot and each record's interval, on one axis."""

from __future__ import annotations

from typing import Any

from pgdyno.analyse.estimate import is_too_wide
from pgdyno.analyse.records.comparison import PairComparison
from pgdyno.report.charts.chart import CONFIG, Chart, colour_of
from pgdyno.report.format import format_number

_ROW_HEIGHT = 34


def records_chart(pair: PairComparison, names: tuple[str, str]) -> Chart | None:
    """Draw the TPS of both records' trials; None where the comparison was refused."""
    if pair.refusals:
        return None
    sides = tuple(zip(names, (pair.first, pair.other), strict=True))
    dots = [{"record": name, "tps": trial.tps} for name, side in sides for trial in side.trials]
    spans = [
        {"record": name, "low": side.workload.tps.low, "high": side.workload.tps.high}
        for name, side in sides
        # A useless interval would squeeze the dots together.
        if side.workload.tps.low is not None and not is_too_wide(side.workload.tps)
    ]
    shown = {name: ", ".join(format_number(trial.tps or 0.0) for trial in side.trials) for name, side in sides}
    return Chart(
        kind="intervals",
        title="TPS of each trial",
        unit="tps",
        alt="; ".join(f"TPS of the trials of {name}: {values}" for name, values in shown.items()),
        caption="Dots are trials, bars the 95 % intervals of their mean.",
        spec=_spec(names, has_spans=bool(spans)),
        marks={"dots": dots, **({"spans": spans} if spans else {})},
    )


def _spec(names: tuple[str, str], *, has_spans: bool) -> dict[str, Any]:
    x = {"type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": {"title": None, "tickCount": 5}}
    y = {"field": "record", "type": "nominal", "sort": list(names), "axis": {"title": None}}
    bars = {
        "data": {"name": "spans"},
        "mark": {"type": "bar", "height": 14, "color": colour_of("blue"), "opacity": 0.28},
        "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "y": y},
    }
    circles = {
        "data": {"name": "dots"},
        "mark": {"type": "circle", "size": 64, "color": colour_of("ink"), "opacity": 0.75},
        "encoding": {"x": {"field": "tps", **x}, "y": y},
    }
    return {
        "width": "container",
        "height": _ROW_HEIGHT * len(names),
        # Vega complains of a layer without data.
        "layer": [bars, circles] if has_spans else [circles],
        "config": CONFIG,
    }
