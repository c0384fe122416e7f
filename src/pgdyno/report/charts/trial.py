"""Draw the charts of one trial over its time. Thinning is for display alone; the record keeps every sample."""

from __future__ import annotations

import math
from typing import Any

from pgdyno.analyse.series import ChartKind, Event, Series
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.report.charts import palette, thin
from pgdyno.report.charts.chart import CONFIG, NUMBER_LABEL, Chart, LegendEntry, colour_by
from pgdyno.report.format import format_moment, format_number

# From this length on, an axis in minutes is easier to read than one in seconds.
_MINUTES_FROM_S = 180.0
_HOURS_FROM_S = 3600.0
_SECONDS_LABEL = "':' + format(datum.value % 60, '02')"
# Where the largest value is this many times the smallest, a linear axis would hide the small ones.
_LOG_FROM_RATIO = 25.0
_MOST_TICKS = 8
_TICKS = 4
# The area of a dot in square pixels, and half of the width of an area of one moment, of the whole axis.
_LONE_SIZE, _LONE_RATIO = 22, 0.005
TIME_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
"""Distances of a time axis's ticks, so that a long trial is divided into whole minutes and hours."""
_STACKED = frozenset({ChartKind.WAITS, ChartKind.CPU})
_WIDE = frozenset({ChartKind.TPS, ChartKind.LATENCY})
# Drawn as a line over the stack of all CPUs: its 100 % is one core.
_OVERLAY_METRIC = "cpu_busiest_core_ratio"
_TITLES = {
    ChartKind.TPS: "Transactions per second",
    ChartKind.LATENCY: "Latency",
    ChartKind.WAITS: "Client backends by state and wait class",
    ChartKind.CPU: "CPU",
    ChartKind.RUN_QUEUE: "Run queue",
    ChartKind.CPU_QUOTA: "Scheduling periods cut short by the CPU quota",
    ChartKind.DISK_IOPS: "Disk operations",
    ChartKind.DISK_THROUGHPUT: "Disk throughput",
    ChartKind.DISK_LATENCY: "Disk latency",
    ChartKind.DIRTY_MEMORY: "Dirty memory",
    ChartKind.WAL: "WAL written",
    ChartKind.FULL_PAGE_IMAGES: "Full-page images",
    ChartKind.BUFFER_WRITES: "Buffers written, by process",
    ChartKind.CACHE_HITS: "Page accesses served by shared_buffers",
    ChartKind.PRESSURE: "Pressure stall (PSI)",
    ChartKind.STANDBY_LAG: "WAL that standbys had not yet taken",
}
_CAPTIONS = {
    ChartKind.WAITS: "Sampled 10 times a second. On saturated CPUs the class CPU is underestimated: the sampler runs only when a backend does not.",
}
# A hue has the same meaning in every chart.
_HUES = {
    "cpu": "green", "lwlock": "vermilion", "lock": "purple", "io": "blue", "ipc": "amber", "client": "brown",
    "timeout": "brown", "bufferpin": "indigo", "extension": "olive", "activity": "slate", "idle in transaction": "slate",
    "user": "blue", "system": "vermilion", "iowait": "amber", "steal": "purple", "irq": "brown", "softirq": "indigo",
    "nice": "sky", "other": "slate", "p50": "green", "p90": "amber", "p95": "blue", "p99": "vermilion",
    "p99.9": "purple", "max": "slate", "mean": "olive",
    "read": "blue", "reads": "blue", "write": "vermilion", "writes": "vermilion", "written": "vermilion",
    "flush": "green", "flushes": "green", "running or ready": "green", "waiting for a disk": "blue",
    "checkpointer": "amber", "background writer": "blue", "backends and others": "vermilion",
}  # fmt: skip


def trial_charts(trial: TrialAnalysis, *, points: int | None = None) -> tuple[Chart, ...]:
    """Draw all charts of a trial in the report's order, without those that have no data or only zeros.

    Args:
        trial: The analysed trial.
        points: The most points of a series; None: all.
    """
    return tuple(_time_chart(kind, _seen_series(trial, kind), trial, points) for kind in list_drawn(trial))


def list_drawn(trial: TrialAnalysis) -> tuple[ChartKind, ...]:
    """Return the kinds of the charts that a trial has, in the report's order."""
    zeros = _zero_kinds(trial)
    return tuple(kind for kind in ChartKind if kind not in zeros and _seen_series(trial, kind))


def name_chart(kind: ChartKind) -> str:
    """Return the title of a chart."""
    return _TITLES[kind]


def list_zero_charts(trial: TrialAnalysis) -> tuple[str, ...]:
    """Return the titles of the charts that are left out because all their values are 0."""
    zeros = _zero_kinds(trial)
    return tuple(_TITLES[kind] for kind in ChartKind if kind in zeros)


def _seen_series(trial: TrialAnalysis, kind: ChartKind) -> tuple[Series, ...]:
    return tuple(one for one in trial.charts.get(kind, ()) if any(value is not None for value in one.values))


def _zero_kinds(trial: TrialAnalysis) -> frozenset[ChartKind]:
    # A trial without a transaction keeps its charts of the load: the zeros are the result.
    values = {kind: {value for one in lines for value in one.values} for kind, lines in trial.charts.items()}
    return frozenset(kind for kind, seen in values.items() if kind is not ChartKind.TPS and seen - {None} == {0.0})


def _time_chart(kind: ChartKind, series: tuple[Series, ...], trial: TrialAnalysis, points: int | None) -> Chart:
    factor, unit = _scale_unit(series)
    legend = _legend(kind, series)
    is_stacked = kind in _STACKED
    columns, step = thin.to_columns(series, factor=factor, points=points, is_stacked=is_stacked)
    note = ""
    if step > 1:
        shown = "their mean" if is_stacked else "their lowest and highest value"
        note = f"Each step of {step} samples is drawn as {shown}; the record keeps all samples."
    until_s = max(trial.record.planned.duration_s, *(one.t_s[-1] for one in series if one.t_s))
    if is_stacked:
        columns = tuple(_widen(group, until_s * _LONE_RATIO) for group in columns)
    lone = thin.list_lone(columns, [entry.field for entry in legend if entry.is_line])
    is_log = kind is ChartKind.LATENCY and _wants_log(series)
    return Chart(
        kind=kind.value,
        title=_TITLES[kind],
        unit=f"{unit}, log scale" if is_log else unit,
        alt=_describe(kind, series, trial, factor, unit),
        note=note,
        caption=_CAPTIONS.get(kind, ""),
        is_wide=kind in _WIDE,
        is_timed=True,
        legend=legend,
        spec=_time_spec(legend, until_s=until_s, y=_y_axis(kind, series, factor=factor, is_log=is_log),
                        height=190 if kind in _WIDE else 140, has_lone=bool(lone)),
        columns=columns,
        # Vega complains of a layer without data.
        marks={**_marks(trial, until_s), **({"lone": lone} if lone else {})},
    )  # fmt: skip


def _widen(group: dict[str, list[float | None]], by_s: float) -> dict[str, list[float | None]]:
    """Give the areas of a single moment a width, without which nothing of them is drawn."""
    if len(group["t"]) != 1:
        return group
    (at_s,) = group["t"]
    return {field: values * 2 for field, values in group.items()} | {"t": [(at_s or 0.0) - by_s, (at_s or 0.0) + by_s]}


def _scale_unit(series: tuple[Series, ...]) -> tuple[float, str]:
    unit = series[0].unit
    if unit == "ratio":
        return 100.0, "%"
    base, _, per = unit.partition("/")
    if base == "bytes":
        largest = max(abs(value) for one in series for value in one.values if value is not None)
        # A rate of bytes has powers of 1000, as in all other words on disks.
        step = 1000 if per else 1024
        size, name = next(((s, n) for s, n in ((step**3, "GB"), (step**2, "MB")) if largest >= s), (step, "kB"))
        return 1 / size, f"{name}/{per}" if per else name
    return 1.0, {"/s": "per second", "count": ""}.get(unit, unit)


def _legend(kind: ChartKind, series: tuple[Series, ...]) -> tuple[LegendEntry, ...]:
    spare = [hue for hue in palette.SERIES if hue not in {_HUES.get(one.label.lower()) for one in series}]
    entries = []
    for index, one in enumerate(series):
        is_line = kind not in _STACKED or one.metric == _OVERLAY_METRIC
        hue = "ink" if is_line and kind in _STACKED else _HUES.get(one.label.lower())
        if hue is None:
            hue = spare.pop(0) if spare else palette.SERIES[index % len(palette.SERIES)]
        entries.append(LegendEntry(label=one.label, hue=hue, field=f"s{index}", is_line=is_line))
    return tuple(entries)


def _wants_log(series: tuple[Series, ...]) -> bool:
    values = [value for one in series for value in one.values if value is not None]
    return min(values) > 0 and max(values) / min(values) >= _LOG_FROM_RATIO


def _y_axis(kind: ChartKind, series: tuple[Series, ...], *, factor: float, is_log: bool) -> dict[str, Any]:
    values = [value * factor for one in series for value in one.values if value is not None]
    if is_log:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        ticks = [10.0**exponent for exponent in range(low, high + 1)]
        return {"scale": {"type": "log", "domain": [ticks[0], ticks[-1]]}, "axis": {"values": ticks}}
    if kind is ChartKind.CPU:
        return {"scale": {"domain": [0, 100]}}
    # Round up to a tick, so that no line ends above the last one; an axis over zeros has no end of its own.
    return {"scale": {"zero": True, "nice": _TICKS} if any(values) else {"domain": [0, 1]}}


def _time_spec(
    legend: tuple[LegendEntry, ...], *, until_s: float, y: dict[str, Any], height: int, has_lone: bool
) -> dict[str, Any]:
    label = "datum.value + ' s'"
    if until_s >= _HOURS_FROM_S:
        label = f"floor(datum.value / 3600) + ':' + format(floor(datum.value / 60) % 60, '02') + {_SECONDS_LABEL}"
    elif until_s >= _MINUTES_FROM_S:
        label = f"floor(datum.value / 60) + {_SECONDS_LABEL}"
    step_s = next((step for step in TIME_STEPS_S if until_s / step <= _MOST_TICKS), until_s)
    ticks = [number * step_s for number in range(int(until_s / step_s) + 1)]
    axis = {"title": None, "grid": False, "labelExpr": label, "labelFlush": True, "values": ticks}
    x = {"field": "t", "type": "quantitative", "scale": {"domain": [0, until_s], "nice": False}, "axis": axis}
    layers = _mark_layers()
    for is_line in (False, True):
        entries = [entry for entry in legend if entry.is_line is is_line]
        if entries:
            layers.append(_series_layer(entries, legend, x=x, y=y, is_line=is_line))
    if has_lone:
        dots = {"type": "circle", "size": _LONE_SIZE, "opacity": 1, "clip": True}
        layers.append({**layers[-1], "data": {"name": "lone"}, "transform": [], "mark": dots})
    return {
        "width": "container",
        "height": height,
        "layer": layers,
        "resolve": {"scale": {"color": "independent"}},
        "config": CONFIG,
    }


def _series_layer(
    entries: list[LegendEntry],
    legend: tuple[LegendEntry, ...],
    *,
    x: dict[str, Any],
    y: dict[str, Any],
    is_line: bool,
) -> dict[str, Any]:
    # A gap in the samples is a gap in the line, never a bridge over it and never a zero.
    mark = {"type": "line", "strokeWidth": 1.5} if is_line else {"type": "area", "opacity": 0.85, "line": False}
    return {
        "data": {"name": "series"},
        "transform": [
            {"fold": [entry.field for entry in entries], "as": ["field", "value"]},
            # A series with other sampling times has no value here at all; null is a gap.
            {"filter": "isDefined(datum.value)"},
        ],
        "mark": {**mark, "interpolate": "linear", "invalid": "break-paths-filter-domains", "clip": True},
        "encoding": {
            "x": x,
            "y": {
                "field": "value",
                "type": "quantitative",
                "scale": y["scale"],
                "stack": None if is_line else "zero",
                "axis": {"title": None, "tickCount": _TICKS, "labelExpr": NUMBER_LABEL, **y.get("axis", {})},
            },
            "color": colour_by("field", {entry.field: entry.hue for entry in legend}),
            "order": {"field": "t" if is_line else "field"},
        },
    }


def _mark_layers() -> list[dict[str, Any]]:
    hues = {"unsteady": "shade", "checkpoint": "amber", "error": "critical", "level shift": "purple"}
    colour = colour_by("kind", hues)
    position = {"field": "from", "type": "quantitative"}
    return [
        {
            "data": {"name": "spans"},
            "mark": {"type": "rect", "opacity": 0.13, "clip": True},
            "encoding": {"x": position, "x2": {"field": "until"}, "color": colour},
        },
        {
            "data": {"name": "moments"},
            "mark": {"type": "rule", "strokeWidth": 1, "strokeDash": [3, 2], "clip": True},
            "encoding": {"x": position, "color": colour},
        },
    ]


def _marks(trial: TrialAnalysis, until_s: float) -> dict[str, list[dict[str, Any]]]:
    spans: list[dict[str, Any]] = []
    if trial.steady_from_s:
        spans.append({"kind": "unsteady", "from": 0, "until": trial.steady_from_s})
    moments = []
    for event in marked_events(trial):
        start = max(0.0, event.t_s)
        if event.until_s is not None:
            spans.append({"kind": event.kind, "from": start, "until": min(until_s, event.until_s)})
        moments.append({"kind": event.kind, "from": start})
    return {"spans": spans, "moments": moments}


def marked_events(trial: TrialAnalysis) -> tuple[Event, ...]:
    """Return the events that charts mark; autovacuums are too many and appear only in the list of events."""
    return tuple(event for event in trial.events if event.kind in {"checkpoint", "error", "level shift"})


def _describe(kind: ChartKind, series: tuple[Series, ...], trial: TrialAnalysis, factor: float, unit: str) -> str:
    parts = []
    for one in series:
        values = [value * factor for value in one.values if value is not None]
        mean, low, high = math.fsum(values) / len(values), min(values), max(values)
        parts.append(f"{one.label} mean {format_number(mean)}, {format_number(low)} to {format_number(high)}")
    marks = [f"{event.kind} at {format_moment(event.t_s)}" for event in marked_events(trial)]
    in_unit = f" in {unit}" if unit else ""
    text = f"{_TITLES[kind]} over time{in_unit}, trial {trial.record.planned.number}: {'; '.join(parts)}."
    return f"{text} Marked: {', '.join(marks)}." if marks else text
