"""Derived settings on the terminal: what speaks against them, how fast it is, and what each layer gave. Fits 60 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.record.tuned import DERIVED, STOCK
from pgdyno.report.answers import answer_study
from pgdyno.report.comparison_terminal import list_answers
from pgdyno.report.format import format_estimate
from pgdyno.report.input import ReportInput
from pgdyno.report.layers import describe_gain, describe_layer, describe_lead, describe_proofs, list_layers
from pgdyno.report.method import describe_error_rate, describe_noise, is_noise_loud
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.terminal_parts import make_heading


def list_proof(report: ReportInput) -> list[RenderableType]:
    """Whether the derived settings are faster, and which layer makes it so."""
    tuned, experiment = report.record.tuned, report.record.plan.experiment
    if tuned is None or experiment is None:
        return []
    lines: list[RenderableType] = []
    for words in describe_lead(report):
        lines += [Paragraph(Text(words, style="bold red"), by=0), ""]
    for comparison in report.analysis.comparisons:
        lines += _figures(comparison)
    lines.append("")
    if not tuned.is_layered:
        return [*lines, *list_answers(report)]
    for claim, figures in describe_proofs(report):
        lines += [Paragraph(Text.assemble((claim, "bold"), f": {figures}."), by=0), ""]
    lines.append(make_heading("what each layer gave here"))
    for layer, gains in list_layers(report):
        lines.append(Paragraph(Text.assemble((layer.name, "bold"), f": {describe_layer(gains)}")))
        lines += [Paragraph(f"{gain.workload}: {describe_gain(gain)}", by=4) for gain in gains]
    lines.append("")
    for answers in answer_study(report):
        is_loud = is_noise_loud(answers)
        said = describe_noise(answers) if is_loud else describe_noise(answers)[:1]
        lines += [Paragraph(Text(words, style="bold red" if is_loud else ""), by=0) for words in said]
    lines += ["", Paragraph(describe_error_rate(experiment), by=0)]
    for name, error in report.record.refused_variants.items():
        lines += ["", Paragraph(Text(f"{name}: {error.fact}", style="bold red"), by=0)]
        lines += [Paragraph(line) for line in (error.detail, error.hint) if line]
    return lines


def _figures(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(comparison.workload, style="bold")
    for variant in (STOCK, DERIVED):
        estimates = next((one.estimates for one in comparison.figures if one.variant == variant), {})
        tps, p99 = estimates.get("tps"), estimates.get("latency_p99_ms")
        if tps is None:
            yield Text(f"  {variant:<7}  not measured")
            continue
        shown = format_estimate(tps)
        latency = f"  p99 {format_estimate(p99).value} ms" if p99 is not None else ""
        interval = shown.interval if shown.interval.startswith("[") else f"({shown.interval})"
        words = f"{variant:<7}  {shown.value} tps {interval}, n={tps.n}{latency}"
        yield Paragraph(words)
