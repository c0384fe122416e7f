"""What a report says of sweeps over loads: the curve and its knee, and never that the first load is the one to stay with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest

from pgdyno.analyse.comparison.answers import compare
from pgdyno.report.documents.report import render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.input import ReportInput
from pgdyno.report.live.answers import view_answers
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.sections.comparison.curve import describe_sweep_outlook
from pgdyno.report.sections.conditions.load_hosts import list_load_proofs
from pgdyno.report.sections.next_steps import list_steps
from pgdyno.report.sections.records.kept import describe_answers, list_gains, parse_kept
from pgdyno.report.study import build_report as build_report_document
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.study import DataSpec, Study, WorkloadSpec
from pgdyno.spec.variant import ExperimentSpec, SweepSpec, VariantSpec
from tests.report.build_comparison import Effect, build_client_sweep, build_crossed, build_paired, compose
from tests.report.build_scaling import build_bench
from tests.rows import each_row


def without_rounds(report: ReportInput) -> ReportInput:
    """The report while its first round runs."""
    experiment = report.record.plan.experiment
    assert experiment is not None
    primary = {one.workload: one.primary for one in report.analysis.comparisons}
    begun = compare(dict.fromkeys(primary, ()), experiment, primary=primary)
    analysis = msgspec.structs.replace(report.analysis, sweeps={}, rounds_needed={}, comparisons=begun)
    return msgspec.structs.replace(report, analysis=analysis)


def build_begun() -> ReportInput:
    """A sweep in which no round has ended."""
    return without_rounds(build_client_sweep())


def build_climbing() -> ReportInput:
    """A sweep whose TPS surely grow up to its largest load."""
    return build_client_sweep(loads=(1, 2, 4, 8))


def build_compared_loads() -> ReportInput:
    """Numbers of clients that `compare` was asked about."""
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like"),),
        variant=tuple(VariantSpec(clients=clients) for clients in (1, 4)),
        experiment=ExperimentSpec(minutes=10.0),
    )
    return compose(study, {"tpcb-like": {"clients=4": Effect(tps=1.01)}}, rounds=6, noise_ratio=0.05, round_s=20.0)


def list_words(report: ReportInput) -> list[str]:
    return [step.words for step in list_steps(report, answer_study(report), ())]


@pytest.mark.parametrize("build", [build_client_sweep, build_begun, build_climbing])
def test_a_sweep_over_clients_compares_no_load_with_the_first(build: Callable[[], ReportInput]) -> None:
    report = build()
    document = build_report_document(report)
    for words in (print_markdown(document), print_html(document, vega_js="")):
        # Beside the reference against itself.
        assert "nconclusive" not in words.replace("clients=1 inconclusive", "")
        assert "against clients=1" not in words
        assert "Stay with" not in words
    (comparison,) = json.loads(render_json(report))["experiment"]["comparisons"]
    assert comparison["sentences"] == list(answer_study(report)[0].curve)
    assert not view_answers(report).verdicts


def test_a_sweep_without_a_knee_says_what_would_find_it() -> None:
    assert list_words(build_client_sweep()) == []
    (words,) = list_words(build_climbing())
    assert re.fullmatch(r"No knee was found: .*TPS still grows.*\. Sweep more clients than 8\.", words), words
    (words,) = (one for one in list_words(build_bench(rounds=1, loads=(1, 2, 4))) if "knee" in one)
    assert "How much longer it takes to decide" in words
    nothing = "Nothing has been compared yet: no round has ended that measured two numbers of clients."
    assert answer_study(build_begun())[0].curve == (nothing,)
    (view,) = view_answers(build_begun()).sweeps
    assert (view.points, view.curve) == ((), (nothing,))


def test_an_undecided_load_says_how_many_more_minutes_would_decide_it() -> None:
    report = build_client_sweep()
    (answers,) = answer_study(report)
    *_, words = answers.curve
    assert re.fullmatch(
        r"About \d+ more (minutes|hours) of this sweep would decide the status of 16 clients\.", words
    ), words
    shown = print_markdown(build_report_document(report))
    assert re.search(
        r"\(1\) could be underused or peak; about \d+ more (minutes|hours) of this sweep would decide it", shown
    )
    (answers,) = answer_study(build_client_sweep(rounds=1))
    assert answers.curve[-1].startswith(
        "How much longer it takes to decide 1, 2, 4, 8, 16, 32 and 64 clients is not known yet: "
    )
    sweep, round_s = report.analysis.sweeps["tpcb-like"], 60.0
    outlook = describe_sweep_outlook(sweep, {16: None}, round_s)
    assert outlook.words == (
        "No affordable number of rounds would decide the status of 16 clients, too near to a limit between two statuses."
    )
    assert list(outlook.loads) == [16]


def test_a_load_that_takes_hours_does_not_hide_that_others_would_soon_be_decided() -> None:
    sweep, round_s = build_client_sweep().analysis.sweeps["tpcb-like"], 60.0
    points = tuple(msgspec.structs.replace(one, status=None) if one.clients >= 8 else one for one in sweep.points)
    needed = {8: 10, 16: 40, 32: 300, 64: None}
    assert describe_sweep_outlook(msgspec.structs.replace(sweep, points=points), needed, round_s).words == (
        "About 40 more minutes of this sweep would decide the status of 8 and 16 clients; 32 clients would take about 5 more hours; no affordable number of rounds would decide the status of 64 clients, too near to a limit between two statuses."
    )


def test_each_interval_of_a_load_says_what_it_is_of() -> None:
    told = print_markdown(build_report_document(build_client_sweep()))
    assert "Their intervals rest on the trials of one load, and differ from those of the curve" in told
    assert "differ from those of the curve" not in print_markdown(build_report_document(build_compared_loads()))


def test_before_the_first_round_has_ended_nothing_is_called_inconclusive() -> None:
    (view,) = view_answers(without_rounds(build_paired())).verdicts
    assert [(row.word, row.remark, row.low) for row in view.rows] == [("not compared yet", "no round has ended", None)]


def test_more_clients_are_no_reason_to_choose_them() -> None:
    report = build_compared_loads()
    (answers,) = answer_study(report)
    assert [one.variant.name for one in answers.answers] == ["clients=4"]
    assert list_words(report) == []


def test_clients_in_two_modes_have_a_curve_for_each_and_verdicts_on_like_loads_alone() -> None:
    report = build_crossed()
    (answers,) = answer_study(report)
    best, *curves = answers.curve
    assert re.fullmatch(r"Highest TPS of the 8 loads measured: [\d,]+, with mode=prepared and 32 clients\.", best), best
    assert [words.partition(":")[0] for words in curves] == ["mode=simple", "mode=prepared"]
    assert all("Status by number of clients: 1 linear" in words for words in curves)
    assert [one.variant.name for one in answers.answers] == ["mode=prepared, clients=1"]
    (words,) = list_words(report)
    assert words == "Use mode=prepared rather than mode=simple, as proven with 1 client."
    (early,) = (
        msgspec.structs.replace(answers, answers=(msgspec.structs.replace(one, verdict=None),))
        for one in answers.answers
    )
    assert list_steps(report, (early,), ()) == ()
    document = build_report_document(report)
    for said in (print_markdown(document), print_html(document, vega_js="")):
        assert "8 combinations of mode and clients" in said
        assert not re.search(r"clients=(8|32|64)\W+(is|against|and mode)", said)
    assert "| 32 | 5," in print_markdown(document)
    assert [one.workload for one in view_answers(report).sweeps] == [
        "select-only, mode=simple",
        "select-only, mode=prepared",
    ]


def test_a_journal_tells_of_clients_in_two_modes_what_was_best() -> None:
    kept = parse_kept(render_json(build_crossed()))
    (words,) = describe_answers(kept)
    assert words.startswith("select-only: Highest TPS of the 8 loads measured:")
    assert not list_gains(kept)


@each_row(
    [
        (1.4, None, 100.0),
        (1.0, "1 load host did as much as 2 on tpcb-like: load hosts were not its limit.", None),
        (1.4, "1 load host limited tpcb-like: 2 did more.", None),
        (0.7, None, None),
    ]
)
def test_levels_of_load_hosts_say_whether_these_limit(tps: float, words: str | None, rate_tps: float | None) -> None:
    named = {name: HostEntry(role=HostRole.LOAD, ssh=name) for name in ("load1", "load2")}
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8, rate_tps=rate_tps),),
        sweep=(SweepSpec(name="load_hosts", levels=(1, 2)),),
        hosts=named,
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {"tpcb-like": {"load_hosts=2": Effect(tps=tps)}}
    report = compose(study, effects, rounds=20, noise_ratio=0.005, round_s=20.0)
    assert list(list_load_proofs(report)) == ([] if words is None else [words])
    written = print_markdown(build_report_document(report))
    assert words is None or words in written
    # More load hosts are no advice about the server.
    assert "Use load_hosts=2" not in written
