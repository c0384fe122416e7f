from __future__ import annotations

import msgspec

from pgdyno.explain.doubts.derived import SLOWER, find_derived_doubts
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.explain.finding import Finding, Severity
from pgdyno.report.input import ReportInput
from tests.report.build_comparison import build_paired
from tests.report.build_derived import build_derived, build_layers


def find(report: ReportInput) -> dict[str, Finding]:
    return {finding.rule: finding for finding in find_derived_doubts(report.record, report.analysis)}


def test_a_set_that_is_slower_than_stock_leads_the_findings() -> None:
    report = build_derived(is_hard=True)
    first, *_ = find_doubts(report.record, report.analysis)
    assert (first.rule, first.severity, first.workload) == (SLOWER, Severity.CRITICAL, "tpcb-like")
    assert not any(finding.spoils_figures for finding in find_doubts(report.record, report.analysis))
    assert "TPS -21.4 % [-23.6, -19.2]" in first.evidence
    assert SLOWER not in find(build_derived())


def test_a_layer_that_costs_is_named() -> None:
    found = find(build_layers())
    assert "without the layer WAL and checkpoints" in found["layer-costs"].claim
    assert "TPS -13.9 % [-14.9, -12.8]" in found["layer-costs"].evidence
    assert SLOWER not in found


def test_trials_shorter_than_three_checkpoints_say_so_where_the_set_is_about_them() -> None:
    report = build_derived()
    assert "`--duration 300s`, which contains three" in find(report)["few-checkpoints"].advice
    tuned = report.record.tuned
    assert tuned is not None
    layers = tuple(layer for layer in tuned.layers if layer.name != "WAL and checkpoints")
    record = msgspec.structs.replace(report.record, tuned=msgspec.structs.replace(tuned, layers=layers))
    assert "few-checkpoints" not in find(msgspec.structs.replace(report, record=record))


def test_studies_without_a_set_are_left_alone() -> None:
    assert find(build_paired()) == {}
