"""The report as one page that needs nothing else: no server, no network, no neighbour file.

Text reaches the page through Jinja's escaping, and the page's own policy (CSP) lets run only the scripts whose hash
it states and load nothing at all. Charts are drawn in the reader's browser from the specifications of `charts`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.resources
from typing import Any

import jinja2
import msgspec
import vl_convert
from markupsafe import Markup

from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report import content, palette, tables
from pgdyno.report.charts import CSS_THEME, Chart, list_zeros, marked_events, strip_chart, trial_charts
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.table import Table

# What all charts of a page may hold, at about six bytes a value: 2.4 MB beside 0.9 MB of Vega, below 5 MB in all.
_VALUES_PER_PAGE = 400_000
_VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"
# A chart is some 1,100 CSS pixels wide at most; more moments than that cannot be seen.
_MOST_POINTS = 1_100
_FEWEST_POINTS = 60


class _Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart's place in the page."""

    id: str
    chart: Chart


class _TrialPart(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's part of the page."""

    id: str
    trial: TrialAnalysis
    title: str
    summary: str
    figures: tuple[_Figure, ...]
    keys: tuple[tuple[str, str], ...]
    """The marks on its charts: hue and meaning."""
    thinned: str
    zeros: tuple[str, ...]
    """Charts left out for want of anything but zeros."""
    events: Table | None
    unknown_lines: str


class _WorkloadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's part of the page."""

    id: str
    name: str
    load: str
    scripts: str
    strip: _Figure | None
    shares: Table | None
    tables: tuple[Table, ...]
    counts: Table | None
    """Of interest to few."""
    first: _TrialPart | None
    others: tuple[_TrialPart, ...]


class _Drawings:
    """Collects the charts of a page; a specification that several charts share is kept once."""

    def __init__(self) -> None:
        self._specs: dict[bytes, int] = {}
        self._charts: dict[str, dict[str, Any]] = {}

    def add(self, figure_id: str, chart: Chart) -> _Figure:
        """Keep a chart and give its place."""
        encoded = msgspec.json.encode(chart.spec, order="deterministic")
        index = self._specs.setdefault(encoded, len(self._specs))
        self._charts[figure_id] = {"spec": index, "columns": chart.columns, "marks": chart.marks}
        return _Figure(id=figure_id, chart=chart)

    def to_json(self) -> str:
        """Everything the page's script draws from, safe inside a script element."""
        specs = [msgspec.Raw(encoded) for encoded in self._specs]
        encoded = msgspec.json.encode({"specs": specs, "charts": self._charts})
        return encoded.decode().replace("<", "\\u003c")


def render_html(report: ReportInput, *, vega_js: str | None = None) -> str:
    """Render the report as one HTML page.

    Args:
        report: What to report.
        vega_js: What `bundle_vega` gave, where the caller has kept it; bundling takes more than a second.
    """
    drawings = _Drawings()
    points = choose_points(report)
    workloads = tuple(
        _make_workload(f"w{number}", workload, report, drawings, points)
        for number, workload in enumerate(report.analysis.workloads, start=1)
    )
    vega = vega_js or bundle_vega()
    script, style = _asset("report.js"), _style()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            record=report.record,
            title=content.title_report(report),
            sentence=content.describe_study(report),
            durability=content.find_durability_given_up(report),
            cards=tuple(zip(content.make_cards(report), workloads, strict=True)),
            findings=content.list_findings(report),
            workloads=workloads,
            dataset=report.record.dataset,
            tables=tables,
            commands=content.list_commands(report),
            repeating=content.describe_repeating(report),
            how_to_read=content.HOW_TO_READ,
            policy=_policy((vega, script), style),
            style=Markup(style),  # noqa: S704 - our own files, not a reader's or a study's words
            scripts=tuple(Markup(one) for one in (vega, script)),  # noqa: S704 - the same
            drawings=Markup(drawings.to_json()),  # noqa: S704 - no < is left in it
        )
    )


@functools.cache
def bundle_vega() -> str:
    """The chart runtime as one script."""
    return vl_convert.javascript_bundle(_VEGA_SNIPPET).replace("\r\n", "\n")


def name_vega() -> str:
    """A name for what `bundle_vega` gives, to keep it under: another one whenever it gives something else."""
    snippet = hashlib.sha256(_VEGA_SNIPPET.encode()).hexdigest()[:8]
    return f"vega-{importlib.metadata.version('vl-convert-python')}-{snippet}.js"


def choose_points(report: ReportInput) -> int:
    """How many moments a series may show, so that all charts of the page stay within its size."""
    series = sum(
        len(shown)
        for workload in report.analysis.workloads
        for trial in workload.trials
        for shown in trial.charts.values()
    )
    return max(_FEWEST_POINTS, min(_MOST_POINTS, _VALUES_PER_PAGE // max(1, series)))


def _make_workload(
    part_id: str, workload: WorkloadAnalysis, report: ReportInput, drawings: _Drawings, points: int
) -> _WorkloadPart:
    planned = report.record.plan.find_workload(workload.name)
    strip = strip_chart(workload, theme=CSS_THEME)
    shown = (tables.counts_table(workload), tables.statements_table(workload))
    parts = {
        trial.record.planned.number: _make_trial(f"{part_id}-t{trial.record.planned.number}", trial, drawings, points)
        for trial in workload.trials
    }
    representative = workload.representative
    first = None if representative is None else parts.pop(representative.record.planned.number)
    return _WorkloadPart(
        id=part_id,
        name=workload.name,
        load=f"{content.describe_load(planned)}, {planned.threads} pgbench {'thread' if planned.threads == 1 else 'threads'}",
        scripts=", ".join(name if weight == 1 else f"{name} @ {weight}" for name, weight in planned.scripts),
        strip=None if strip is None else drawings.add(f"{part_id}-strip", strip),
        shares=tables.shares_table(workload),
        tables=tuple(table for table in shown if table is not None),
        counts=tables.all_counts_table(workload),
        first=first,
        others=tuple(parts.values()),
    )


def _make_trial(part_id: str, trial: TrialAnalysis, drawings: _Drawings, points: int) -> _TrialPart:
    charts = trial_charts(trial, theme=CSS_THEME, points=points)
    kinds = {event.kind for event in marked_events(trial)}
    keys = (
        [
            (
                "shade",
                f"left out as not steady: the first {format_seconds(trial.steady_from_s)} (points are whole seconds)",
            )
        ]
        if trial.steady_from_s
        else []
    )
    keys += [
        (hue, kind)
        for kind, hue in (("checkpoint", "amber"), ("level shift", "purple"), ("error", "critical"))
        if kind in kinds
    ]
    return _TrialPart(
        id=part_id,
        trial=trial,
        title=content.name_trial(trial).capitalize(),
        summary=content.describe_trial(trial),
        figures=tuple(drawings.add(f"{part_id}-{chart.kind}", chart) for chart in charts),
        keys=tuple(keys),
        thinned=next((chart.note for chart in charts if chart.note), ""),
        zeros=list_zeros(trial),
        events=tables.events_table(trial),
        unknown_lines="\n".join(trial.unknown_lines),
    )


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("pgdyno.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


@functools.cache
def _asset(name: str) -> str:
    return importlib.resources.files("pgdyno.report").joinpath("templates", name).read_text(encoding="utf-8")


def _style() -> str:
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in colours.items()) for colours in (palette.LIGHT, palette.DARK)
    )
    hues = "".join(f".hue-{name}{{--hue:var(--{name})}}" for name in palette.LIGHT)
    # Paper is always light: the dark colours are the screen's alone.
    return (
        f":root{{{light}color-scheme:light}}@media screen and (prefers-color-scheme:dark)"
        f"{{:root{{{dark}color-scheme:dark}}}}{hues}\n{_asset('report.css')}"
    )


def _policy(scripts: tuple[str, ...], style: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
