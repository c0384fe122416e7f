"""What a report says of a search: what holds, what fails, what is open, and never more than was shown."""

from __future__ import annotations

import json
import re

import jsonschema
import msgspec
import pytest

from pgdyno.analyse.search.latency_limit import RateVerdict
from pgdyno.analyse.search.rate_search import WorkloadSearch
from pgdyno.plan.search import CAPACITY_ROUNDS
from pgdyno.report.charts.search import limit_chart
from pgdyno.report.documents.report import make_schema, render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.sections.head import build_cards, describe_study, title_study
from pgdyno.report.sections.search.answers import answer_searches, describe_search_error
from pgdyno.report.sections.search.tables import rates_table, trials_table
from pgdyno.report.study import build_report as build_report_document
from tests.analyse.searches import SEARCH, make_misses
from tests.report.build import build_report
from tests.report.build_search import build_search
from tests.report.vega import check_vega_lite


@pytest.mark.parametrize(
    ("machine", "claim", "more"),
    [
        (
            "settled",
            r"tpcb-like holds p99 < 20 ms at \d+ TPS and fails at \d+ TPS: the limit is at about \d+ TPS \[\d+ – \d+\], \d+ trials at scheduled rates\.",
            "In a closed loop the load reaches",
        ),
        ("capacity", r"tpcb-like holds .* and fails at", "the server's capacity is the limit here, not the latency"),
        ("open", r"tpcb-like (is undecided|holds|fails)", "would settle it"),
        ("hopeless", r"does not hold p99 < 20 ms even at \d+ TPS, the lowest rate that was tried", "reach lower rates"),
        (
            "boundless",
            r"holds p99 < 20 ms at 1,\d+ TPS, more than its closed-loop TPS",
            "the server's capacity is",
        ),
    ],
)
def test_each_workload_gets_its_answer_in_words(machine: str, claim: str, more: str) -> None:
    (answer,) = answer_searches(build_search(machine))
    assert re.search(claim, answer.claim), answer.claim
    assert more in " ".join(answer.sentences)


def test_before_the_first_rate_nothing_is_claimed() -> None:
    report = build_search("settled")
    (search,) = report.analysis.searches
    bare = msgspec.structs.replace(search, answer=None, levels=(), lowest_tps=None, highest_tps=None, trial_s=None)
    analysis = msgspec.structs.replace(report.analysis, searches=(bare,))
    early = msgspec.structs.replace(report, analysis=analysis)
    (answer,) = answer_searches(early)
    assert "Nothing is known" in answer.claim
    assert "No trial at a scheduled rate is finished" in print_html(build_report_document(early), vega_js="")
    assert "## Trials at scheduled rates" not in print_markdown(build_report_document(early))


def test_a_search_has_no_cards_and_a_first_sentence_that_is_true() -> None:
    report = build_search("settled", "open")
    assert tuple(build_cards(report)) == ()
    assert describe_study(report).startswith(
        "tpcb-like and select-only: the largest rate that holds p99 < 20 ms, sought by 8 pgbench clients"
    )
    assert title_study(report.record) == "How many TPS hold p99 < 20ms?"
    silent = msgspec.structs.replace(report.record, study=msgspec.structs.replace(report.record.study, question=""))
    assert title_study(silent) == "What is the largest rate that holds p99 < 20 ms?"
    assert answer_searches(build_report()) == ()


def test_the_tables_hold_every_rate_and_every_trial() -> None:
    report = build_search("settled")
    asked, (search,) = report.record.plan.search, report.analysis.searches
    assert asked is not None
    rates, trials = rates_table(search, asked), trials_table(search, asked)
    assert len(rates.rows) == len(search.levels)
    assert [row[0].text for row in trials.rows] == [f"trial {number}" for number in range(4, 4 + len(trials.rows))]
    assert {row[1].text for row in rates.rows} >= {"▲ holds", "▼ fails"}
    held = sum(int(row[2].text.split(" of ")[0]) for row in rates.rows)
    assert held == sum(row[-1].text == "held" for row in trials.rows)


@pytest.mark.parametrize(
    ("late", "shown", "is_told"),
    [((0, 0), "0 %", False), ((0, 8), "0.025 %", True), ((2, 8), "0.050 %", False)],
)
def test_what_nothing_missed_is_0(late: tuple[int, ...], shown: str, is_told: bool) -> None:
    seeker = WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        seeker.add_capacity(1000.0)
    for number, count in enumerate(late):
        misses = msgspec.structs.replace(make_misses(800.0, 1600.0), late_count=count)
        seeker.add_misses(misses, number=number, length_s=10.0)
    table = rates_table(seeker.state(), SEARCH)
    assert table.rows[0][3].text == shown
    assert ("one in which none missed counts as half a transaction" in table.remark) is is_told


@pytest.mark.parametrize("machine", ["settled", "open", "hopeless"])
def test_the_chart_is_valid_and_shows_every_trial(machine: str) -> None:
    report = build_search(machine)
    asked, (search,) = report.record.plan.search, report.analysis.searches
    assert asked is not None
    chart = limit_chart(search, asked)
    check_vega_lite(chart)
    assert len(chart.marks["points"]) == sum(len(level.trials) for level in search.levels)
    assert len(chart.marks["band"]) == (machine == "settled")
    assert all(point["missed"] > 0 for point in chart.marks["points"])


def test_the_document_has_every_trial_at_full_precision() -> None:
    report = build_search("settled")
    document = json.loads(render_json(report))
    jsonschema.Draft202012Validator(make_schema()).validate(document)
    (workload,) = document["search"]["workloads"]
    (search,) = report.analysis.searches
    assert search.answer is not None
    assert workload["found"]["answer"]["holds_tps"] == search.answer.holds_tps
    assert sum(len(level["trials"]) for level in workload["found"]["levels"]) == search.answer.n
    assert {level["verdict"] for level in workload["found"]["levels"]} <= {one.value for one in RateVerdict}
    assert json.loads(render_json(build_report()))["search"] is None


def test_the_page_answers_first_and_links_to_its_parts() -> None:
    page = print_html(build_report_document(build_search("settled", "open")), vega_js="")
    assert page.index("the limit is at about") < page.index('id="method"') < page.index('id="trials"')
    for part in ("r1", "r2", "method", "trials"):
        assert f'href="#{part}"' in page
        assert f'id="{part}"' in page
    assert "Search method" in page
    assert "Comparison method" not in page


def test_findings_tell_an_early_end_a_busy_pgbench_and_trials_that_do_not_count() -> None:
    report = build_search("open")
    (found,) = report.findings
    assert "ended before its limit was found" in found.claim
    assert "resume" in found.advice
    assert build_search("settled").findings == ()


def test_the_error_rate_is_that_of_all_workloads_together() -> None:
    report = build_search("settled", "open")
    asked = report.record.plan.search
    assert asked is not None
    assert asked.alpha == pytest.approx(0.025)
    assert "at most 5 would give a rate the wrong verdict" in describe_search_error(asked, 2)
