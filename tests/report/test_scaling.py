"""The sweep over clients in the report of what it followed: one story in four forms, and nothing of either is lost."""

from __future__ import annotations

import io
import json

import jsonschema
import msgspec
from rich.console import Console

from pgdyno.report.documents.experiment import make_scaling
from pgdyno.report.documents.report import make_schema, render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.client_sweep import describe_scaling_method, scaling_report
from pgdyno.report.study import build_report as build_report_document
from tests.report.build_comparison import build_client_sweep
from tests.report.build_derived import build_derived
from tests.report.build_scaling import build_bench

TITLE = "tpcb-like by clients, derived settings"


def print_report(report: ReportInput) -> str:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False, no_color=True, legacy_windows=False).print(
        print_terminal(build_report_document(report))
    )
    return out.getvalue()


def test_every_form_tells_the_curve_after_the_verdicts() -> None:
    report = build_bench()
    page, markdown, terminal = (
        print_html(build_report_document(report), vega_js=""),
        print_markdown(build_report_document(report)),
        print_report(report),
    )
    for words in (page, markdown, terminal):
        assert words.index("derived") < words.index(TITLE) < words.rindex("TPS is highest at")
        assert "derived is faster than stock on tpcb-like" in " ".join(words.split())
    assert "Universal Scalability Law" in page
    assert "Universal Scalability Law" in markdown
    # What was compared keeps its own part, beside that of the sweep.
    assert 'id="c1"' in page
    assert 'id="s1"' in page
    assert "## Verdicts on tpcb-like\n" in markdown


def test_the_document_holds_the_sweep_under_its_own_name() -> None:
    document = json.loads(render_json(build_bench()))
    jsonschema.validate(document, make_schema())
    scaling = document["scaling"]
    assert (scaling["arm"], scaling["record_dir"]) == ("derived", f"{document['record_dir']}/clients")
    (comparison,) = scaling["experiment"]["comparisons"]
    assert comparison["workload"] == "tpcb-like"
    assert [point["clients"] for point in comparison["sweep"]["points"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [one["workload"] for one in document["experiment"]["comparisons"]] == ["tpcb-like", "select-only"]
    assert all(one["sweep"] is None for one in document["experiment"]["comparisons"])


def test_it_says_under_which_settings_and_why() -> None:
    first, *others = describe_scaling_method(build_bench())
    assert "with derived settings (proven to be faster than stock on tpcb-like)" in first
    assert "7 numbers of clients" in first
    assert any(words.startswith("Error rate: of 100 such sweeps") for words in others)


def test_without_a_sweep_or_two_loads_of_one_nothing_is_said() -> None:
    bare, begun = build_derived(), build_bench()
    scaling = begun.analysis.scaling
    assert scaling is not None
    scaling = msgspec.structs.replace(scaling, analysis=msgspec.structs.replace(scaling.analysis, sweeps={}))
    begun = msgspec.structs.replace(begun, analysis=msgspec.structs.replace(begun.analysis, scaling=scaling))
    for report in (bare, begun):
        assert scaling_report(report) is None
        assert make_scaling(report) is None
        assert describe_scaling_method(report) == ()
        assert print_markdown(build_report_document(report)) == print_markdown(build_report_document(bare))


def test_a_load_of_one_trial_has_its_figure_and_no_interval() -> None:
    report = build_client_sweep(rounds=1, loads=(1, 2, 4))
    said = print_report(report)
    (line,) = (line for line in said.splitlines() if line.split()[:1] == ["4"])
    # The status has the reason for both.
    assert line.endswith("(n = 1: no interval)                 —       1  undecided (1)")
    assert line.split()[1].replace(",", "").isdigit()
    rows = [line for line in print_markdown(build_report_document(report)).splitlines() if line.startswith("| 4 |")]
    assert rows
    assert all("(n = 1: no interval)" in row for row in rows)
