"""Files for other programs, and the words that end a gated report: the same figures, in formats that hold."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
import xmlschema
from rich.console import Console

from pgdyno.analyse.comparison.answers import COUNT_METRICS, SPEED_METRICS
from pgdyno.analyse.comparison.gate import GateResult, judge_gate
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.record.types import ErrorFact
from pgdyno.report.exports.bmf import render_bmf
from pgdyno.report.exports.junit import render_junit
from pgdyno.report.forms.terminal import print_headlines
from pgdyno.report.input import ReportInput
from pgdyno.report.live.answers import view_answers
from pgdyno.report.sections.gate import build_gate
from pgdyno.spec.gate import parse_conditions
from tests.report.build import HOSTILE
from tests.report.build_comparison import build_paired, build_product, build_split, build_switchback

# Source: junit-10.xsd of the xUnit plugin of Jenkins (MIT licence), also at testing/example_scripts in pytest's sources.
JUNIT = Path(__file__).parents[1] / "data/junit-10.xsd"
# Source: https://bencher.dev/docs/reference/bencher-metric-format
BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
        }
    },
}
REPORTS: dict[str, Callable[[], ReportInput]] = {
    "switchback": build_switchback,
    "hard": lambda: build_paired(is_hard=True),
    "product": build_product,
}


def judge(report: ReportInput, *texts: str) -> GateResult:
    experiment = report.record.plan.experiment
    assert experiment is not None
    conditions = parse_conditions(texts, metrics=(*SPEED_METRICS, *COUNT_METRICS))
    return judge_gate(report.analysis.comparisons, experiment, conditions, dropped=report.record.refused_variants)


@functools.cache
def _read_schema() -> xmlschema.XMLSchema10:
    return xmlschema.XMLSchema10(str(JUNIT))


def read_junit(document: bytes) -> ET.Element:
    """The document, once the schema has taken it."""
    text = document.decode()
    _read_schema().validate(text)
    return ET.fromstring(text)


@pytest.mark.parametrize("name", REPORTS)
def test_junit_has_a_case_for_each_question_that_says_what_was_decided(name: str) -> None:
    report = REPORTS[name]()
    gate = judge(report, "worse", "tps<-10%")
    document = render_junit(report, gate)
    assert b"undecided" not in document
    root = read_junit(document)
    assert [suite.attrib["name"] for suite in root] == [one.workload for one in report.analysis.comparisons]
    for suite, comparison in zip(root, report.analysis.comparisons, strict=True):
        cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
        assert len(cases) == len(list(suite.iter("testcase"))) == int(suite.attrib["tests"])
        for question in comparison.questions:
            case = cases.get(f"{question.variant} against {comparison.reference}: {question.metric}")
            if case is None:
                assert question.variant in gate.dropped
                continue
            is_failed = bool(gate.find_failures(comparison.workload, question))
            is_open = question.verdict.kind is VerdictKind.INCONCLUSIVE
            assert (case.find("failure") is not None) == is_failed
            assert (case.find("skipped") is not None) == (is_open and not is_failed)
            output = case.findtext("system-out") or ""
            assert question.variant in output
            assert "the reference against itself" in output
        for tag, count in (("failure", "failures"), ("skipped", "skipped")):
            assert sum(case.find(tag) is not None for case in cases.values()) == int(suite.attrib[count])
    assert int(root.attrib["failures"]) == sum(int(suite.attrib["failures"]) for suite in root)


def test_words_in_the_place_of_an_interval_stand_in_parentheses() -> None:
    report = build_paired()
    first, *others = report.analysis.comparisons
    wide = tuple(
        msgspec.structs.replace(
            one,
            estimates={
                name: msgspec.structs.replace(estimate, low=31.0, high=110.0, value=58.0)
                for name, estimate in one.estimates.items()
            },
        )
        for one in first.figures
    )
    comparisons = (msgspec.structs.replace(first, figures=wide), *others)
    report = msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, comparisons=comparisons))
    output = read_junit(render_junit(report, judge(report, "slower"))).findtext("testsuite/testcase/system-out") or ""
    assert f"{first.reference}: 58 tps (31 – 110: too wide), n = " in output


def test_the_schema_finds_what_it_does_not_know() -> None:
    report = build_switchback()
    document = render_junit(report, judge(report, "slower"))
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        read_junit(document.replace(b"<testcase", b'<testcase count="1"', 1))


def test_a_variant_that_dropped_out_is_a_failed_case() -> None:
    report = build_switchback()
    root = read_junit(render_junit(report, judge(report, "slower")))
    dropped = [case for case in root.iter("testcase") if case.attrib["name"].endswith("dropped out")]
    assert len(dropped) == len(report.analysis.comparisons)
    assert "Available values: fsync, <fdatasync>." in (dropped[0].findtext("failure") or "")


def test_names_with_markup_and_what_no_xml_may_hold() -> None:
    report = build_paired(is_hard=True)
    document = render_junit(report, judge(report, "inconclusive"))
    assert b"<script>" not in document
    assert HOSTILE in read_junit(document).find("testsuite/testcase").attrib["name"]  # type: ignore[union-attr]
    # A server's message may hold any byte.
    error = ErrorFact(fact="\x1b[31mred\x00 ]]> \ud800 \ufffe", detail="\x0b\U0001f418\n\ttab", hint="")
    broken = build_switchback()
    refused = dict.fromkeys(broken.record.refused_variants, error)
    broken = msgspec.structs.replace(broken, record=msgspec.structs.replace(broken.record, refused_variants=refused))
    failure = read_junit(render_junit(broken, judge(broken, "slower"))).find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == "\ufffd[31mred\ufffd ]]> \ufffd \ufffd"
    assert failure.text == "\ufffd[31mred\ufffd ]]> \ufffd \ufffd\n\ufffd\U0001f418\n\ttab"


@pytest.mark.parametrize("name", REPORTS)
def test_bmf_holds_every_variant_and_its_ratio_with_intervals(name: str) -> None:
    report = REPORTS[name]()
    document = json.loads(render_bmf(report))
    jsonschema.validate(document, BMF)
    for comparison in report.analysis.comparisons:
        assert "tps_ratio" not in document[f"{comparison.workload}: {comparison.reference}"]
        for question in comparison.questions:
            if question.metric != "tps" or not question.log_ratios:
                continue
            measures = document[f"{comparison.workload}: {question.variant}"]
            verdict = question.verdict
            assert verdict.effect_ratio is not None
            assert verdict.low_ratio is not None
            assert measures["tps_ratio"]["value"] == 1 + verdict.effect_ratio
            assert measures["tps_ratio"]["lower_value"] == 1 + verdict.low_ratio
            for measure in measures.values():
                assert measure["lower_value"] <= measure["value"] <= measure["upper_value"]


def test_bmf_has_no_bounds_where_there_is_no_interval() -> None:
    report = build_switchback(rounds=1)
    document = json.loads(render_bmf(report))
    jsonschema.validate(document, BMF)
    assert set(document["tpcb-like: commit_delay=50"]["tps"]) == {"value"}
    assert set(document["tpcb-like: commit_delay=50"]["tps_ratio"]) == {"value"}
    assert "tpcb-like: wal_sync_method=open_datasync" not in document


def said(report: ReportInput, *texts: str) -> str:
    console = Console(width=300, file=io.StringIO())
    console.print(print_headlines([build_gate(judge(report, *texts))]))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_last_lines_say_what_failed_by_which_interval_and_at_which_rate() -> None:
    words = said(build_switchback(), "slower", "device_flush_count<-10%").splitlines()
    assert words[1] == "  Failed: --fail-if slower, device_flush_count<-10%."
    assert re.fullmatch(
        r"  slower: commit_delay=1000 is slower than stock on tpcb-like: TPS -24.1 % \[-27.8, -19.9\]"
        r" \(99.38 % interval\), 24 pairs\.",
        words[2],
    )
    assert "  wal_sync_method=open_datasync dropped out. A variant that cannot be measured fails every gate." in words
    assert words[-1] == (
        "  By chance at most 10 of 100 such gates fail if no variant changes anything: at most 5 for each metric"
        " (TPS, disk flushes). The study's --confidence sets this rate."
    )


def test_an_undecided_question_is_no_failure_unless_asked_for() -> None:
    passed, failed = said(build_paired(), "slower", "blks_read_pages>1%"), said(build_paired(), "inconclusive")
    assert "Passed: --fail-if slower, blks_read_pages>1%: nothing of it is proven." in passed
    assert (
        "Inconclusive, which is no failure: shared_buffers=1GB against shared_buffers=128MB on tpcb-like is inconclusive"
        in passed
    )
    assert "blks_read_pages>1% was not judged: this comparison has no figures for it." in passed
    assert "By chance at most 5 of 100" in passed
    assert "Failed: --fail-if inconclusive." in failed
    assert "By chance" not in failed
    assert "Do not trust this gate" in said(build_paired(is_hard=True), "slower")


def test_the_sum_of_a_load_in_parts_has_figures_and_no_verdict_in_any_export() -> None:
    report = build_split()
    benchmarks = json.loads(render_bmf(report))
    ratios = {name.partition(":")[0]: "tps_ratio" in one for name, one in benchmarks.items() if "remote_apply" in name}
    assert ratios == {"split": False, "part tpcb-like of split": True, "part select-only of split": True}
    assert all("tps" in one for one in benchmarks.values())
    shown = view_answers(report).verdicts
    assert [(one.workload, one.rows[0].word) for one in shown] == [
        ("part tpcb-like of split", "slower"),
        ("part select-only of split", "faster"),
    ]
