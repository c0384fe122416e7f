"""Make the live page: one HTML page with its own style and script, which loads nothing from elsewhere.

The page holds nothing of a record: its script gets all of that as JSON and sets it as text, so no name in a record is
ever read as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources

import msgspec

from pgdyno.report.charts import palette
from pgdyno.report.charts.trial import TIME_STEPS_S


class LivePage(msgspec.Struct, frozen=True, kw_only=True):
    """The page, and the policy (CSP) that it is served with."""

    html: bytes
    policy: str


def make_live_page() -> LivePage:
    """Make the page."""
    folder = importlib.resources.files("pgdyno.report.live").joinpath("templates")
    page, style, script = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("live.html", "live.css", "live.js")
    )
    style, script = palette.make_rules() + style, script.replace("{time_steps_s}", str(list(TIME_STEPS_S)))
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return LivePage(html=page.replace("{style}", style).replace("{script}", script).encode(), policy=policy)


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
