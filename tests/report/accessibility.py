"""What axe-core finds against people with screen readers, keyboards or weak eyes on a page that a browser shows."""

from __future__ import annotations

import importlib.resources
from typing import Any

from tests.report.browser import Browser

_SERIOUS = {"serious", "critical"}
# The colours that color-mix() gives are none that this axe-core can read: while it looks, they stand as rgba().
_LOOK = """(async () => {
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const changed = [];
  for (const one of document.querySelectorAll("body *")) for (const name of ["color", "background-color"]) {
    const colour = getComputedStyle(one).getPropertyValue(name);
    if (colour.startsWith("rgb")) continue;
    changed.push([one, name, one.style.getPropertyValue(name)]);
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
    one.style.setProperty(name, `rgba(${red}, ${green}, ${blue}, ${alpha / 255})`);
  }
  const seen = await axe.run(document);
  for (const [one, name, before] of changed) one.style.setProperty(name, before);
  return [seen.violations, seen.passes.flatMap((one) => one.id === "color-contrast" ? one.nodes : []).length];
})()"""
# axe-core judges no text in a chart.
_COLOURS_IN_CHARTS = "[...new Set([...document.querySelectorAll('svg text')].map((one) => getComputedStyle(one).fill))]"


def find_barriers(browser: Browser) -> list[tuple[str, str]]:
    """The serious and critical violations of axe-core's rules, contrast among them, each with the first element it is about."""
    source = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.evaluate(f"{source}; undefined")
    found: list[dict[str, Any]]
    found, judged_count = browser.evaluate(_LOOK)
    assert judged_count, "axe-core could judge the contrast of some text"
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in _SERIOUS]


def read_chart_colours(browser: Browser) -> list[str]:
    """The colours of text in charts, which axe-core cannot judge."""
    seen: list[str] = browser.evaluate(_COLOURS_IN_CHARTS)
    return seen
