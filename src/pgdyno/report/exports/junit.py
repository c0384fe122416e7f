"""Make a JUnit XML document: a test suite for each workload or part of one, a test case for each question of variant and metric.

A test case fails if a condition of the gate holds for its question. It is skipped if no condition holds and the question
is inconclusive. Its output has the figures. A variant that dropped out is one more test case, which fails.

Source: junit-10.xsd of the xUnit plugin of Jenkins, a superset of what Maven's Surefire writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from pgdyno.analyse.comparison.answers import Comparison, Question
from pgdyno.analyse.comparison.gate import GateResult
from pgdyno.report.format import format_in_unit
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.gate import describe_failure, describe_rate, format_level
from pgdyno.report.verdict_words import METRIC_WORDS, describe_outlook, describe_verdict

# Source: https://www.w3.org/TR/xml/#charsets. XML has no way to write other characters, not even escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT = "\ufffd"


def render_junit(report: ReportInput, gate: GateResult) -> bytes:
    """Return the document."""
    suites = [_make_suite(comparison, report, gate) for comparison in report.analysis.list_judged()]
    counts = _count([case for suite in suites for case in suite.iter("testcase")])
    # The schema has no count of skipped cases here.
    del counts["skipped"]
    root = ET.Element("testsuites", {"name": _clean(f"pgdyno {report.record.name}"), **counts})
    root.extend(suites)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _make_suite(comparison: Comparison, report: ReportInput, gate: GateResult) -> ET.Element:
    cases = [_make_dropped(comparison, name, report) for name in gate.dropped]
    cases += [
        _make_case(comparison, question, gate)
        for question in comparison.questions
        if question.log_ratios or question.variant not in gate.dropped
    ]
    # The variants share their rounds.
    spent_s = max((one.spent_s for one in comparison.questions), default=0.0)
    suite = ET.Element("testsuite", {"name": _clean(comparison.workload), **_count(cases), "time": f"{spent_s:.3f}"})
    suite.extend(cases)
    _add_text(suite, "system-out", "\n".join(_describe_suite(comparison, gate)))
    return suite


def _make_case(comparison: Comparison, question: Question, gate: GateResult) -> ET.Element:
    case = _name_case(comparison, question.variant, question.metric)
    if question.metric == comparison.primary:
        # All metrics come from the same rounds, whose time counts once.
        case.set("time", f"{question.spent_s:.3f}")
    failures = gate.find_failures(comparison.workload, question)
    if failures:
        # One element, because Jenkins reads no second one.
        words = [describe_failure(failure) for failure in failures]
        named = ", ".join(failure.condition.text for failure in failures)
        _add_text(case, "failure", "\n".join(words), type=named, message=words[0])
    verdict = question.verdict
    if not failures and not verdict.is_decided:
        outlook = describe_outlook(verdict, round_s=comparison.round_s)
        ET.SubElement(case, "skipped", {"message": _clean(f"inconclusive: {outlook}")})
    _add_text(case, "system-out", "\n".join(_describe_question(comparison, question)))
    return case


def _make_dropped(comparison: Comparison, variant: str, report: ReportInput) -> ET.Element:
    case = _name_case(comparison, variant, "dropped out")
    error = report.record.refused_variants[variant]
    details = "\n".join(line for line in (error.fact, error.detail, error.hint) if line)
    _add_text(case, "failure", details, type="dropped out", message=error.fact)
    return case


def _name_case(comparison: Comparison, variant: str, what: str) -> ET.Element:
    return ET.Element(
        "testcase",
        {
            "classname": _clean(f"pgdyno.{comparison.workload}"),
            "name": _clean(f"{variant} against {comparison.reference}: {what}"),
        },
    )


def _describe_question(comparison: Comparison, question: Question) -> Iterator[str]:
    verdict = question.verdict
    yield describe_verdict(verdict)
    if verdict.low_ratio is not None:
        yield f"{format_level(verdict.confidence)} interval"
    for figures in comparison.figures:
        estimate = figures.estimates.get(question.metric)
        if figures.variant in {comparison.reference, question.variant} and estimate is not None:
            shown = format_in_unit(estimate)
            yield f"{figures.variant}: {shown.value} {shown.beside}, {shown.n}".rstrip()
    noise = comparison.find_noise(question.metric)
    if noise is not None:
        yield f"the reference against itself: {describe_verdict(noise.verdict)}"


def _describe_suite(comparison: Comparison, gate: GateResult) -> Iterator[str]:
    noise = comparison.find_noise(comparison.primary)
    if noise is not None:
        yield f"the reference against itself in {METRIC_WORDS[comparison.primary]}: {describe_verdict(noise.verdict)}"
    if gate.conditions:
        yield describe_rate(gate)


def _count(cases: Sequence[ET.Element]) -> dict[str, str]:
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": 0,
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    return {name: str(count) for name, count in counts.items()}


def _add_text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    """Add an element with a text; nothing without one."""
    if text:
        named = {name: _clean(value) for name, value in attributes.items()}
        ET.SubElement(parent, tag, named).text = _clean(text)


def _clean(text: str) -> str:
    """Replace the characters that XML cannot hold; the writer escapes the others."""
    return _NO_XML.sub(_REPLACEMENT, text)
