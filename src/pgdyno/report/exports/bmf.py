"""Make a Bencher Metric Format document: every variant's figures and its ratio to the reference, with intervals.

A benchmark is a variant on a workload, or on a part of one. Its measures are those of the comparison (`tps`, `latency_p95_ms`, …) and, except for
the reference, `tps_ratio` and so on: the variant over the reference, from pairs. Only the ratios compare like with like:
figures of two runs were measured at different times.

A value without an interval has no bounds. What was not observed is left out, because the format has no null.

Source: https://bencher.dev/docs/reference/bencher-metric-format
"""

from __future__ import annotations

import math

import msgspec

from pgdyno.analyse.comparison.answers import JUDGED_METRICS, Comparison
from pgdyno.report.input import ReportInput

# Source: the same page; a longer name is refused.
_LONGEST_NAME = 1024

Measure = dict[str, float]


def render_bmf(report: ReportInput) -> bytes:
    """Return the document."""
    benchmarks: dict[str, dict[str, Measure]] = {}
    parts = (one.comparison for one in report.analysis.part_comparisons)
    wholes = (report.analysis.find_own_questions(one) for one in report.analysis.comparisons)
    for comparison in (*wholes, *parts):
        for figures in comparison.figures:
            measures = {
                name: _measure(estimate.value, estimate.low, estimate.high)
                for name, estimate in figures.estimates.items()
            } | _make_ratios(comparison, figures.variant)
            kept = {name: measure for name, measure in measures.items() if "value" in measure}
            if kept:
                benchmarks[f"{comparison.workload}: {figures.variant}"[:_LONGEST_NAME]] = kept
    return msgspec.json.format(msgspec.json.encode(benchmarks)) + b"\n"


def _make_ratios(comparison: Comparison, variant: str) -> dict[str, Measure]:
    """Return the ratios of a variant to the reference; none for the reference."""
    found = {metric: comparison.find(variant, metric) for metric in JUDGED_METRICS}
    ratios = {}
    for metric, question in found.items():
        if question is not None:
            verdict = question.verdict
            ends = (verdict.effect_ratio, verdict.low_ratio, verdict.high_ratio)
            ratios[f"{metric}_ratio"] = _measure(*(None if end is None else 1.0 + end for end in ends))
    return ratios


def _measure(value: float | None, low: float | None, high: float | None) -> Measure:
    named = {"value": value, "lower_value": low, "upper_value": high}
    return {name: each for name, each in named.items() if each is not None and math.isfinite(each)}
