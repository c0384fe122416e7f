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
import re

import jinja2
import vl_convert
from markupsafe import Markup, escape

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report import content, declared_disk, layers, palette, surroundings, trial_tables
from pgdyno.report.comparison_parts import make_comparisons, make_following
from pgdyno.report.comparison_tables import variants_table
from pgdyno.report.disk_uses import own_disk_table
from pgdyno.report.drawings import Drawings
from pgdyno.report.evidence import list_sections
from pgdyno.report.finding_words import list_findings
from pgdyno.report.first_page import make_first_page
from pgdyno.report.health import sources_table
from pgdyno.report.input import ReportInput
from pgdyno.report.losses import find_durability_given_up
from pgdyno.report.method import TRIALS_REMARK, describe_method
from pgdyno.report.paragraph import hold_together
from pgdyno.report.places import name_workload
from pgdyno.report.preflight_table import preflight_table
from pgdyno.report.reading import explain_reading
from pgdyno.report.search_parts import make_searches
from pgdyno.report.search_words import TRIALS_REMARK as SEARCH_TRIALS_REMARK
from pgdyno.report.search_words import describe_search_method
from pgdyno.report.trial_parts import make_workload
from pgdyno.report.variants import VariantText, describe_variants, find_variant_of

# What all charts of a page may hold, at about six bytes a value: 2.4 MB beside 0.9 MB of Vega, below 5 MB in all.
_VALUES_PER_PAGE = 400_000
_VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"
# A chart is some 1,100 CSS pixels wide at most; more moments than that cannot be seen.
_MOST_POINTS = 1_100
_FEWEST_POINTS = 60
_CODE = re.compile(r"`([^`]+)`")


def render_html(report: ReportInput, *, vega_js: str | None = None) -> str:
    """Render the report as one HTML page.

    Args:
        report: What to report.
        vega_js: What `bundle_vega` gave, where the caller has kept it; bundling takes more than a second.
    """
    drawings = Drawings()
    points = choose_points(report)
    experiment = report.record.plan.experiment
    variants = {} if experiment is None else describe_variants(report.record, experiment)
    workloads = tuple(
        make_workload(name_workload(number), workload, drawings, points=points, tag=_tag(variants, workload))
        for number, workload in enumerate(report.analysis.workloads, start=1)
    )
    return render_page(
        "report.html.j2",
        drawings,
        vega_js=vega_js,
        report=report,
        record=report.record,
        title=content.title_report(report),
        sentence=content.describe_study(report),
        durability=find_durability_given_up(report),
        cards=tuple(zip(content.make_cards(report), workloads, strict=False)),
        first=make_first_page(report),
        findings=list_findings(report),
        workloads=workloads,
        comparisons=make_comparisons(report, drawings),
        following=make_following(report, drawings),
        searches=make_searches(report, drawings),
        method=(*describe_method(report), *describe_search_method(report)),
        trials_remark=TRIALS_REMARK if experiment is not None else SEARCH_TRIALS_REMARK,
        mixed_remark=content.MIXED_REMARK,
        variants=variants_table(variants),
        layers=layers,
        sections=list_sections(report),
        dataset=report.record.dataset,
        trial_tables=trial_tables,
        surroundings=surroundings,
        preflight_table=preflight_table,
        own_disk_table=own_disk_table,
        declared_disk=declared_disk,
        commands=content.list_commands(report),
        repeating=content.describe_repeating(report),
        how_to_read=explain_reading(report),
        bounds=sources_table(report.analysis.workloads),
    )


def render_page(template: str, drawings: Drawings, *, vega_js: str | None, **shown: object) -> str:
    """Fill a template with what it shows, with the charts, the script that draws them and the style.

    Args:
        template: Its name.
        drawings: The charts of the page.
        vega_js: As `render_html` has it.
        shown: What the template names.
    """
    vega = vega_js or bundle_vega()
    script, style = _asset("report.js"), _style()
    return (
        _environment()
        .get_template(template)
        .render(
            **shown,
            policy=_policy((vega, script), style),
            style=Markup(style),  # noqa: S704 - our own files, not a reader's or a study's words
            scripts=tuple(Markup(one) for one in (vega, script)),  # noqa: S704 - the same
            drawings=Markup(drawings.to_json()),  # noqa: S704 - no < is left in it
        )
    )


def _tag(variants: dict[str, VariantText], workload: WorkloadAnalysis) -> str:
    variant = find_variant_of(workload, variants) if variants else None
    return "" if variant is None else variant.tag


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


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pgdyno.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["marked"] = _mark
    environment.filters["unbroken"] = lambda words: hold_together(words, "\N{NO-BREAK SPACE}")
    return environment


def _mark(words: str) -> Markup:
    """Words with what stands between backticks as code; all of it stays text."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(hold_together(words, "\N{NO-BREAK SPACE}")))))  # noqa: S704 - escaped


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
