"""What axe-core finds against people with screen readers or keyboards on a page that a browser shows."""

from __future__ import annotations

import importlib.resources
from typing import Any

from tests.report.browser import Browser

_SERIOUS = {"serious", "critical"}


def find_barriers(browser: Browser) -> list[tuple[str, str]]:
    """The serious and critical violations of axe-core's rules, each with the first element that it is about.

    Contrast is not among them: this axe-core cannot read the colours that color-mix() gives.
    """
    source = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.evaluate(f"{source}; undefined")
    found: list[dict[str, Any]] = browser.evaluate("axe.run(document).then((seen) => seen.violations)")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in _SERIOUS]
