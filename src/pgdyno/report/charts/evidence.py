"""The charts behind a verdict: every pair with the interval as it narrowed, and the evidence as it grew.

Both are recomputed from the pairs and show what the verdict rests on; nothing here decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.report.charts.chart import CONFIG, Chart, LegendEntry, colour_of
from pgdyno.report.charts.intervals import PERCENT_LABEL, bounds_of, percent
from pgdyno.report.charts.thin import shorten
from pgdyno.report.format import format_number, format_p, format_within
from pgdyno.report.verdict_words import HUES, METRIC_WORDS, describe_verdict

# More dots or looks than this cannot be told apart.
_MOST_DOTS = 600
_MOST_LOOKS = 400
# This share of pairs on each side may lie outside the chart: one stray pair would flatten all others.
_STRAY_SHARE = 0.005
_POWERS = "abs(datum.value) < 4 ? format(pow(10, datum.value), ',~g') : '10^' + format(datum.value, '~g')"

_Rows = list[dict[str, Any]]


def pairs_chart(question: Question, *, title: str, hue: str | None = None) -> Chart | None:
    """Draw every pair in the order of running, the interval after each pair, and the bounds; None without pairs."""
    if not question.log_ratios:
        return None
    verdict = question.verdict
    looks = [{"n": n, "low": low, "high": high} for n, low, high in list_looks(question, most=_MOST_LOOKS)]
    dots, joined = _dots(question)
    low, high, stray_count = _pair_domain(question)
    band = hue or HUES[verdict.kind]
    notes = []
    if joined > 1:
        notes.append(f"Each dot is the mean of {joined} neighbouring pairs; report.json has every pair.")
    if stray_count:
        notes.append(f"{stray_count} of {verdict.n:,} pairs lie outside the chart.")
    end = _end(verdict, low, high)
    metric = METRIC_WORDS[verdict.metric]
    return Chart(
        kind="pairs",
        title=title,
        unit=f"{metric} change",
        alt=f"{verdict.n:,} pairs in the order of running: {describe_verdict(verdict)}.",
        caption=" ".join(notes),
        is_wide=False,
        legend=(
            LegendEntry(label="pair" if joined == 1 else "pairs", hue="ink", field="", is_line=False),
            LegendEntry(label="interval so far", hue=band, field="", is_line=False),
            LegendEntry(label=format_within(verdict.delta_ratio), hue="muted", field="", is_line=True),
        ),
        spec=_pairs_spec(band=band, n=verdict.n, domain=(low, high)),
        marks={"pairs": dots, "looks": looks, "bounds": _lines(verdict.delta_ratio), "end": end},
    )


def evidence_chart(question: Question) -> Chart | None:
    """Draw the evidence after each pair and the threshold for a decision; None without pairs."""
    if len(question.log_ratios) < 2:
        return None
    verdict = question.verdict
    alpha = verdict.sequential_alpha
    values = list(question.gather(verdict).log10_e_values)
    step = math.ceil(len(values) / _MOST_LOOKS)
    shown = sorted({*range(0, len(values), step), len(values) - 1, int(np.argmax(values))})
    rows = [{"n": at + 1, "e": shorten(values[at])} for at in shown]
    enough = math.log10(1.0 / alpha)
    domain = (min(-1.0, *values), max(1.2 * enough, 1.05 * max(values)))
    hue = HUES[verdict.kind]
    return Chart(
        kind="evidence",
        title="Evidence",
        unit="e-value, log scale",
        alt=(
            f"Evidence after each of {verdict.n:,} pairs that the two variants differ: at most 10 to the power of"
            f" {format_number(verdict.log10_e_value)};"
            f" {1.0 / alpha:,.4g} decides. {describe_verdict(verdict)}."
        ),
        caption=_describe_test(verdict),
        is_wide=False,
        legend=(
            LegendEntry(label="evidence that they differ", hue=hue, field="", is_line=True),
            LegendEntry(label=f"threshold (1/α = {1.0 / alpha:,.4g})", hue="critical", field="", is_line=True),  # noqa: RUF001 - the letter that statisticians use
        ),
        spec=_evidence_spec(hue=hue, n=verdict.n, domain=domain),
        marks={"evidence": rows, "enough": [{"y": enough}]},
    )


def _describe_test(verdict: Verdict) -> str:
    """Describe the t-test of the final look, which decides beside the e-process; empty where none was made."""
    look = verdict.final_look
    if look is msgspec.UNSET or not look.is_made or look.p_value is None:
        return ""
    return (
        f"The final look, a t-test of {look.n:,} pairs, has {format_p(look.p_value)};"
        f" {format_number(verdict.sequential_alpha)} or less decides."
    )


def _pairs_spec(band: str, n: int, domain: tuple[float, float]) -> dict[str, Any]:
    x = _pair_axis(n)
    y = {
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False},
        "axis": {"title": None, "labelExpr": PERCENT_LABEL, "tickCount": 5},
    }
    hue = colour_of(band)
    return {
        "width": "container",
        "height": 200,
        "layer": [
            {
                "data": {"name": "looks"},
                "mark": {"type": "area", "color": hue, "opacity": 0.22, "clip": True, "line": False},
                "encoding": {"x": {"field": "n", **x}, "y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
            {
                "data": {"name": "bounds"},
                "mark": {"type": "rule", "color": colour_of("muted"), "strokeDash": [4, 3], "clip": True},
                "encoding": {"y": {"field": "y", **y}},
            },
            {
                "data": {"name": "end"},
                "mark": {"type": "rule", "color": colour_of("shade"), "strokeWidth": 1},
                "encoding": {"y": {"datum": 0, **y}},
            },
            {
                "data": {"name": "pairs"},
                "mark": {"type": "circle", "size": 22, "color": colour_of("ink"), "opacity": 0.6, "clip": True},
                "encoding": {"x": {"field": "n", **x}, "y": {"field": "change", **y}},
            },
            {
                "data": {"name": "end"},
                "mark": {"type": "rule", "color": hue, "strokeWidth": 5, "clip": True},
                "encoding": {"x": {"field": "n", **x}, "y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
            # An interval that goes on beyond the axis ends in an arrow.
            *(
                {
                    "data": {"name": "end"},
                    "mark": {"type": "point", "shape": shape, "size": 90, "filled": True, "opacity": 1, "color": hue},
                    "encoding": {"x": {"field": "n", **x}, "y": {"field": field, **y}},
                }
                for shape, field in (("triangle-down", "before"), ("triangle-up", "beyond"))
            ),
        ],
        "config": CONFIG,
    }


def _evidence_spec(hue: str, n: int, domain: tuple[float, float]) -> dict[str, Any]:
    x = _pair_axis(n)
    y = {
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False},
        "axis": {"title": None, "labelExpr": _POWERS, "values": _whole_ticks(*domain)},
    }
    return {
        "width": "container",
        "height": 200,
        "layer": [
            {
                "data": {"name": "enough"},
                "mark": {"type": "rule", "color": colour_of("critical"), "strokeDash": [4, 3]},
                "encoding": {"y": {"field": "y", **y}},
            },
            {
                "data": {"name": "evidence"},
                "mark": {"type": "line", "color": colour_of(hue), "strokeWidth": 2, "clip": True},
                "encoding": {"x": {"field": "n", **x}, "y": {"field": "e", **y}},
            },
        ],
        "config": CONFIG,
    }


def _end(verdict: Verdict, lowest: float, highest: float) -> _Rows:
    """Return the last interval, and the ends of the axis that it goes on beyond; nothing before the first interval."""
    if verdict.low_ratio is None:
        return []
    low, high = percent(verdict.low_ratio), percent(verdict.high_ratio or 0.0)
    return [
        {
            "n": verdict.n * 1.025,
            "low": low,
            "high": high,
            **({"before": lowest} if low < lowest else {}),
            **({"beyond": highest} if high > highest else {}),
        }
    ]


def _whole_ticks(low: float, high: float) -> list[int]:
    step = _round_step(max(1, math.ceil((high - low) / 6)))
    return list(range(step * math.ceil(low / step), math.floor(high) + 1, step))


def _round_step(least: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 and so on that is not below `least`."""
    size: int = 10 ** (len(f"{least}") - 1)
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= least)


def _pair_axis(n: int) -> dict[str, Any]:
    # Few pairs would get ticks at fractions, which are shown as whole numbers twice.
    axis = {"title": "pairs, in the order of running", "grid": False, "values": _whole_ticks(0, n), "format": ",d"}
    return {"type": "quantitative", "scale": {"domain": [0, n * 1.04], "nice": False}, "axis": axis}


def _dots(question: Question) -> tuple[_Rows, int]:
    ratios = question.log_ratios
    joined = math.ceil(len(ratios) / _MOST_DOTS)
    groups = (ratios[start : start + joined] for start in range(0, len(ratios), joined))
    dots = [
        {"n": number * joined + (len(group) + 1) / 2, "change": percent(math.expm1(math.fsum(group) / len(group)))}
        for number, group in enumerate(groups)
    ]
    return dots, joined


def _pair_domain(question: Question) -> tuple[float, float, int]:
    """Return the range of the axis in percent, and how many pairs lie outside it."""
    verdict = question.verdict
    changes = np.expm1(np.asarray(question.log_ratios)) * 100.0
    ends = np.quantile(changes, [_STRAY_SHARE, 1.0 - _STRAY_SHARE], method="inverted_cdf").tolist()
    bounds = bounds_of(verdict.delta_ratio)
    wanted = [*ends, 1.3 * bounds["from"], 1.3 * bounds["until"]]
    if verdict.low_ratio is not None and verdict.high_ratio is not None:
        # A wide interval that settles nothing need only show that it continues, not how far.
        room = 1.5 * (max(wanted) - min(wanted))
        wanted += [
            max(percent(verdict.low_ratio), min(wanted) - room),
            min(percent(verdict.high_ratio), max(wanted) + room),
        ]
    margin = 0.04 * (max(wanted) - min(wanted))
    low, high = min(wanted) - margin, max(wanted) + margin
    return low, high, int(((changes < low) | (changes > high)).sum())


def list_looks(question: Question, *, most: int) -> Iterator[tuple[int, float, float]]:
    """Yield numbers of pairs, the last among them, each with the ends of the interval after so many, in percent.

    Args:
        question: One with pairs.
        most: About how many are shown.
    """
    evidence = question.gather(question.verdict)
    step = math.ceil(max(1, evidence.n) / most)
    for at in sorted({*range(0, evidence.n, step), evidence.n - 1}):
        one = evidence.intervals[at]
        if one.low is not None and one.high is not None:
            yield at + 1, percent(math.expm1(one.low)), percent(math.expm1(one.high))


def _lines(delta_ratio: float) -> _Rows:
    return [{"y": end} for end in bounds_of(delta_ratio).values()]
