"""Print a document as one page that needs nothing else: no server, no network, no other file.

Text reaches the page through Jinja's escaping, and the page's own policy (CSP) lets only the scripts run whose hash it
states and loads nothing at all. Charts are drawn in the reader's browser.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.resources
import re
from collections.abc import Iterable
from typing import Any

import jinja2
import msgspec
import vl_convert
from markupsafe import Markup, escape

from pgdyno.report.charts import palette
from pgdyno.report.document import ChartBlock, Document, list_charts, list_contents
from pgdyno.report.forms.paragraph import hold_together

_VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"
# A browser breaks a line after a dash although the space that follows may not be broken.
_SPACE, _DASH = "\N{NO-BREAK SPACE}", "–\N{NO-BREAK SPACE}"
_HELD_DASH = "–\N{WORD JOINER}\N{NO-BREAK SPACE}"
_CODE = re.compile(r"`([^`]+)`")
# A browser breaks a line after the dashes of an option.
_OPTION = re.compile(r"(?<!\S)--?[\w-]+")


def print_html(document: Document, *, vega_js: str | None = None) -> str:
    """Return a document as one HTML page.

    Args:
        document: The document to print.
        vega_js: A cached result of `bundle_vega`; bundling takes more than a second.
    """
    vega = bundle_vega() if vega_js is None else vega_js
    return _render(
        document,
        scripts=(vega, _read_asset("report.js")),
        style=_make_style(),
        without_script="The charts need JavaScript; every figure is in the tables as well.",
    )


def print_index(document: Document) -> str:
    """Return a document without charts as one HTML page, whose tables the reader can sort."""
    return _render(
        document,
        scripts=(_read_asset("index.js"),),
        style=f"{_make_style()}{_read_asset('index.css')}",
        without_script="To sort the tables takes JavaScript.",
    )


def _render(document: Document, *, scripts: tuple[str, ...], style: str, without_script: str) -> str:
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            contents=tuple(list_contents(document.blocks)),
            policy=_make_policy(scripts, style),
            style=Markup(style),  # noqa: S704 - our own files, not a reader's or a study's words
            scripts=tuple(map(Markup, scripts)),
            drawings=Markup(_encode_drawings(list_charts(document.blocks))),  # noqa: S704 - no < is left in it
            without_script=without_script,
        )
    )


@functools.cache
def bundle_vega() -> str:
    """Return the chart runtime as one script."""
    return vl_convert.javascript_bundle(_VEGA_SNIPPET).replace("\r\n", "\n")


def name_vega() -> str:
    """Return a file name for caching `bundle_vega`'s script, which changes whenever the script does."""
    snippet = hashlib.sha256(_VEGA_SNIPPET.encode()).hexdigest()[:8]
    return f"vega-{importlib.metadata.version('vl-convert-python')}-{snippet}.js"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pgdyno.report.forms"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["marked"] = _mark
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _mark(words: str) -> Markup:
    """Return text with the parts between backticks as code; everything else is escaped."""
    held = hold_together(words, _SPACE).replace(_DASH, _HELD_DASH)
    return Markup(_CODE.sub(_mark_code, str(escape(held))))  # noqa: S704 - escaped


def _mark_code(found: re.Match[str]) -> str:
    held = _OPTION.sub(r'<span class="held">\g<0></span>', found[1])
    return f"<code>{held}</code>"


@functools.cache
def _read_asset(name: str) -> str:
    return importlib.resources.files("pgdyno.report.forms").joinpath("templates", name).read_text(encoding="utf-8")


def _make_style() -> str:
    return f"{palette.make_rules()}\n{_read_asset('report.css')}"


def _make_policy(scripts: tuple[str, ...], style: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _encode_drawings(charts: Iterable[ChartBlock]) -> str:
    """Return all data for the page's script, as JSON that is safe inside a script element."""
    specs: dict[bytes, int] = {}
    drawn: dict[str, dict[str, Any]] = {}
    for block in charts:
        encoded = msgspec.json.encode(block.chart.spec, order="deterministic")
        index = specs.setdefault(encoded, len(specs))
        drawn[block.id] = {"spec": index, "columns": block.chart.columns, "marks": block.chart.marks}
    made = msgspec.json.encode({"specs": [msgspec.Raw(one) for one in specs], "charts": drawn})
    return made.decode().replace("<", "\\u003c")
