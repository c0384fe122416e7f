"""The first page: the order of steps, what may be called proven, what could not be judged, and nothing twice."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource, TransactionTime
from pgdyno.analyse.types import GeneratorFigures, WaitingSessions
from pgdyno.explain.bottleneck import LIMITS, find_bottlenecks
from pgdyno.explain.capacity import CEILING
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.flow.report import compose_report
from pgdyno.record.samples.clock import ClockFit
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import STOCK
from pgdyno.record.types import ErrorFact, LoadHostFacts
from pgdyno.report.documents.explanation import make_explanation
from pgdyno.report.explanation import build_explanation
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.conditions.load_hosts import load_hosts_table
from pgdyno.report.sections.durability import list_durability_given_up
from pgdyno.report.sections.evidence import time_table
from pgdyno.report.sections.findings import list_explanations, list_findings, make_claim
from pgdyno.report.sections.first_page import FirstPage, make_first_page
from pgdyno.report.sections.head import build_head
from pgdyno.report.sections.links import find_places
from pgdyno.report.sections.quoted import waiting_table
from pgdyno.report.sections.step import StepCertainty
from pgdyno.report.study import build_report as build_document
from pgdyno.spec.study import DataSpec, ServerKind, ServerSpec, Study, WorkloadSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import ExperimentSpec, VariantSpec
from tests.report.build import build_report
from tests.report.build_comparison import Effect, build_paired, build_split, build_switchback, compose
from tests.report.build_derived import build_derived, build_layers, build_mixed
from tests.report.build_explained import build_explained, build_explained_comparison
from tests.report.build_search import build_search
from tests.report.test_poolers import FIGURES
from tests.report.test_poolers import make_report as build_pooled
from tests.report.test_standbys import make_report as build_with_standbys

RECORDS = Path(__file__).parent.parent / "data" / "records"
_PROVEN = Finding(
    severity=Severity.NOTE,
    rule=LIMITS,
    claim="The CPUs limit this load.",
    evidence="99 % busy",
    advice="Take more of them.",
    certainty=Certainty.PROVEN,
    gain="TPS +38 % [+30, +47]",
    gain_ratio=0.38,
    is_gain_proven=True,
    workload="select-only",
)


def _page(*findings: Finding, report: ReportInput | None = None) -> FirstPage:
    return make_first_page(msgspec.structs.replace(report or build_report(), explanations=findings))


def _standings(page: FirstPage) -> list[StepCertainty]:
    return [step.standing for step in page.steps]


def test_steps_come_by_what_is_known_of_their_gain_and_the_largest_first() -> None:
    small = msgspec.structs.replace(
        _PROVEN, claim="a", advice="Do a.", certainty=Certainty.LIKELY, gain_ratio=0.1, is_gain_proven=False
    )
    large = msgspec.structs.replace(
        small, claim="b", advice="Do b.", gain_ratio=2.4, confirm="`try it`: it is to be faster. So it goes."
    )
    vague = msgspec.structs.replace(small, claim="c", advice="Do c.", gain="", gain_ratio=None)
    page = _page(vague, small, large, _PROVEN)
    assert _standings(_page(msgspec.structs.replace(_PROVEN, is_gain_proven=False))) == [StepCertainty.EXPECTED]
    assert [step.words for step in page.steps[:4]] == ["Take more of them.", "Do b.", "Do a.", "Do c."]
    assert _standings(page) == [
        StepCertainty.PROVEN, StepCertainty.EXPECTED, StepCertainty.EXPECTED, StepCertainty.UNKNOWN, StepCertainty.SETTLES
    ]  # fmt: skip
    assert page.steps[-1].words == "`try it`: it is to be faster."


def test_what_is_expected_to_gain_less_than_counts_as_a_difference_is_no_step() -> None:
    least = build_report().record.study.experiment.detect_ratio
    small = msgspec.structs.replace(_PROVEN, certainty=Certainty.LIKELY, gain_ratio=0.9 * least, is_gain_proven=False)
    assert _standings(_page(small)) == []
    assert _standings(_page(msgspec.structs.replace(small, gain_ratio=least))) == [StepCertainty.EXPECTED]


def test_one_experiment_is_named_at_a_time_and_none_for_what_is_proven() -> None:
    likely = msgspec.structs.replace(_PROVEN, certainty=Certainty.LIKELY, confirm="x")
    other = msgspec.structs.replace(likely, claim="Locks limit this load.", workload="tpcb-like")
    assert _standings(_page(likely, other)).count(StepCertainty.SETTLES) == 1
    assert StepCertainty.SETTLES not in _standings(_page(msgspec.structs.replace(_PROVEN, confirm="x")))


def test_the_evidence_of_a_limit_and_what_is_shown_beside_it_are_of_one_trial() -> None:
    report = build_report(names=("tpcb-like",))
    (workload,) = report.analysis.workloads
    time = TransactionTime(transaction_ms=1.0, shares=(), observed_count=100)
    waiting = (WaitingSessions(event="CPU", sessions=1.0, most_sessions=2.0),)
    trials = tuple(msgspec.structs.replace(trial, time=time, waiting=waiting) for trial in workload.trials)
    for trial in trials:
        found = Bottleneck(
            resource=Resource.CPU, certainty=Certainty.LIKELY, evidence=("60 %",), trial=trial.record.planned.number
        )
        of_trial = msgspec.structs.replace(workload, trials=trials, bottleneck=found)
        analysis = msgspec.structs.replace(report.analysis, workloads=(of_trial,))
        (limit,) = find_bottlenecks(report.record, analysis)
        named = f"trial {trial.record.planned.number}"
        places = find_places(limit, msgspec.structs.replace(report, analysis=analysis))
        assert {place.where for place in places} == {named}
        assert [place.title for place in places][:1] == ["Transaction time breakdown"]
        tables = (time_table(of_trial), waiting_table(trial))
        assert all(table is not None and table.caption.endswith(f" in {named}") for table in tables)


@pytest.mark.parametrize("certainty", [Certainty.LIKELY, Certainty.UNKNOWN])
def test_a_load_has_one_first_limit(certainty: Certainty) -> None:
    ceiling = Finding(
        severity=Severity.NOTE,
        rule=CEILING,
        claim="The load is near its ceiling, the limit of the disk's flushes.",
        evidence="3,900 TPS",
        workload="select-only",
    )
    elsewhere = msgspec.structs.replace(ceiling, workload="tpcb-like")
    limit = msgspec.structs.replace(_PROVEN, certainty=certainty)
    report = build_report(names=("select-only", "tpcb-like"))
    page = _page(ceiling, elsewhere, limit, report=report)
    is_known = certainty is not Certainty.UNKNOWN
    assert [(one.rule, one.names) for one in page.shown[:2]] == [
        (LIMITS, ("select-only",)),
        (CEILING, ("tpcb-like",) if is_known else ("select-only", "tpcb-like")),
    ]
    assert [(one.rule, one.names) for one in page.explained[len(page.shown) :]] == (
        [(CEILING, ("select-only",))] if is_known else []
    )


@pytest.mark.parametrize(
    "build", [build_report, build_explained, build_explained_comparison, build_derived, build_paired, build_switchback]
)
def test_no_page_has_two_limits_of_a_load(build: Callable[[], ReportInput]) -> None:
    page = make_first_page(build())
    named = [name for one in page.shown if one.rule in {LIMITS, CEILING} for name in one.names if name in page.limited]
    assert len(named) == len(set(named))


def test_the_same_advice_for_several_workloads_is_given_once() -> None:
    page = _page(_PROVEN, msgspec.structs.replace(_PROVEN, claim="d", workload="tpcb-like", gain=""))
    assert [(step.standing, step.workloads) for step in page.steps] == [
        (StepCertainty.PROVEN, ("select-only",)), (StepCertainty.UNKNOWN, ("tpcb-like",))
    ]  # fmt: skip
    other = msgspec.structs.replace(_PROVEN, claim="d", workload="tpcb-like", gain="TPS +9 %")
    both = _page(_PROVEN, other)
    assert both.steps[0].workloads == ("select-only", "tpcb-like")
    assert both.steps[0].gain == "select-only: TPS +38 % [+30, +47]; tpcb-like: TPS +9 %"
    # Two of these are one finding already, and are named once.
    merged = _page(_PROVEN, other, msgspec.structs.replace(other, workload="simple-update", gain="TPS +5 %"))
    assert merged.steps[0].gain == "select-only: TPS +38 % [+30, +47]; tpcb-like: TPS +9 %; simple-update: TPS +5 %"


def test_what_limits_a_load_says_what_to_do_about_its_ceiling() -> None:
    ceiling = Finding(
        severity=Severity.NOTE,
        rule=CEILING,
        claim="Near it.",
        evidence="91 %",
        advice="More CPUs.",
        workload="select-only",
    )
    other = msgspec.structs.replace(ceiling, workload="tpcb-like", claim="Near that.")
    page = _page(_PROVEN, ceiling, other)
    assert [(step.words, step.workloads) for step in page.steps] == [
        ("Take more of them.", ("select-only",)), ("More CPUs.", ("tpcb-like",))
    ]  # fmt: skip


def test_what_gives_up_durability_is_a_what_if_and_never_advice() -> None:
    page = make_first_page(build_switchback())
    lossy = [step for step in page.steps if "asynchronous" in step.words]
    assert [step.standing for step in lossy] == [StepCertainty.WHAT_IF]
    assert page.steps[-1] is lossy[0]
    assert "shows what durability costs" in lossy[0].words
    assert not any(step.standing is StepCertainty.PROVEN and "Use" in step.words for step in page.steps)


def _compare(
    reference: dict[str, SettingValue], other: dict[str, SettingValue], *, tps: float, standbys: int = 0
) -> FirstPage:
    """The first page of a study of two variants, with the other's TPS as a multiple of the reference's."""
    variants = (VariantSpec(name="first", settings=reference), VariantSpec(name="other", settings=other))
    study = Study(
        server=ServerSpec(settings={"synchronous_standby_names": "*"} if standbys else {}, standbys=standbys),
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8),),
        variant=variants,
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {"tpcb-like": {"other": Effect(tps=tps)}}
    return make_first_page(compose(study, effects, rounds=40, noise_ratio=0.02, round_s=2.9))


@pytest.mark.parametrize(
    ("lossy", "safe", "standbys"),
    [
        ({"fsync": "off"}, {"fsync": "on"}, 0),
        ({"synchronous_commit": "off"}, {"synchronous_commit": "on"}, 0),
        ({"synchronous_commit": "local"}, {"synchronous_commit": "on"}, 1),
        # Less is lost, but not nothing.
        ({"fsync": "off"}, {"synchronous_commit": "off"}, 0),
    ],
)
@pytest.mark.parametrize("tps", [0.6, 0.99, 1.0])
def test_nobody_is_told_to_stay_with_what_gives_up_durability(
    lossy: dict[str, SettingValue], safe: dict[str, SettingValue], standbys: int, tps: float
) -> None:
    page = _compare(lossy, safe, tps=tps, standbys=standbys)
    assert not any("Stay with" in step.words for step in page.steps)
    (cost,) = (step for step in page.steps if step.standing is StepCertainty.WHAT_IF)
    assert "shows what durability costs" in cost.words
    assert "TPS" in cost.gain
    assert StepCertainty.PROVEN not in _standings(page)


def test_a_reference_that_gives_up_durability_is_left_for_what_keeps_it_and_is_faster() -> None:
    page = _compare({"synchronous_commit": "off"}, {"synchronous_commit": "on"}, tps=1.3)
    assert page.steps[0].standing is StepCertainty.PROVEN
    assert page.steps[0].words.startswith("Use other rather than first")


def test_what_gives_up_more_than_a_reference_without_durability_is_no_advice() -> None:
    page = _compare({"synchronous_commit": "off"}, {"fsync": "off", "synchronous_commit": "off"}, tps=1.3)
    assert StepCertainty.PROVEN not in _standings(page)
    assert [step.words for step in page.steps if step.standing is StepCertainty.WHAT_IF]


def _drop_out(report: ReportInput, *names: str) -> FirstPage:
    """The first page where some variants dropped out after their pairs."""
    errors = dict.fromkeys(names, ErrorFact(fact="the server crashed under it", detail="PANIC"))
    return make_first_page(
        msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, refused_variants=errors))
    )


def test_durability_is_given_up_by_a_study_whose_durable_variant_dropped_out() -> None:
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8),),
        variant=(VariantSpec(name="first", settings={"fsync": "off"}), VariantSpec(name="safe")),
        experiment=ExperimentSpec(minutes=10.0),
    )
    report = compose(study, {"tpcb-like": {"safe": Effect(tps=1.0)}}, rounds=40, noise_ratio=0.02, round_s=2.9)
    assert not list_durability_given_up(report)
    error = ErrorFact(fact="the server crashed under it", detail="PANIC")
    record = msgspec.structs.replace(report.record, refused_variants={"safe": error})
    (lost,) = list_durability_given_up(msgspec.structs.replace(report, record=record))
    assert lost.assignment == "fsync = off"


def test_nobody_is_told_to_use_what_dropped_out() -> None:
    levels = {"50": 1.3, "100": 1.9, "200": 1.6}
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8),),
        variant=(VariantSpec(name="0"), *(VariantSpec(name=n, settings={"commit_delay": int(n)}) for n in levels)),
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {"tpcb-like": {name: Effect(tps=tps) for name, tps in levels.items()}}
    report = compose(study, effects, rounds=40, noise_ratio=0.02, round_s=2.9)
    steps = [(step.standing, step.words) for step in make_first_page(report).steps]
    assert steps == [(StepCertainty.PROVEN, "Use 100 rather than 0."), (StepCertainty.PROVEN, "Use 200 rather than 0.")]
    dropped = "Use 100 rather than 0, once you know why it dropped out: the server crashed under it."
    assert [(step.standing, step.words) for step in _drop_out(report, "100").steps] == [
        (StepCertainty.PROVEN, "Use 200 rather than 0."), (StepCertainty.PROVEN, "Use 50 rather than 0.")
    ]  # fmt: skip
    assert [(step.standing, step.words) for step in _drop_out(report, "100", "200").steps] == [
        (StepCertainty.PROVEN, "Use 50 rather than 0."), (StepCertainty.UNKNOWN, dropped)
    ]  # fmt: skip
    assert [step.badge for step in _drop_out(report, "50", "100", "200").steps] == ["dropped out", "dropped out"]


def test_of_derived_settings_no_step_leads_to_a_variant_that_dropped_out() -> None:
    steps = [step.words for step in _drop_out(build_layers(), "without WAL and checkpoints").steps]
    assert steps[0].startswith("Use the derived settings.")
    assert not any("WAL and checkpoints" in words for words in steps)
    assert not any("Stay with" in step.words for step in _drop_out(build_derived(is_hard=True), STOCK).steps)


def test_trials_without_a_whole_checkpoint_cycle_prove_nothing_against_rarer_checkpoints() -> None:
    caution = "Trials of 10 s were too short to show what is gained by checkpointing less often"
    (layer,) = (step for step in make_first_page(build_layers()).steps if "WAL and checkpoints" in step.words)
    assert (layer.standing, layer.badge) == (StepCertainty.UNKNOWN, "undecided")
    assert layer.words.endswith("for now: it made the server slower in these trials.")
    assert layer.caution.startswith(caution)
    (whole,) = (step for step in make_first_page(build_derived(is_hard=True)).steps if "Stay with" in step.words)
    assert whole.standing is StepCertainty.UNKNOWN
    assert whole.words.startswith("Stay with stock for now: the variants tested were slower in these trials: TPS -21")
    assert whole.caution.startswith(caution)


def _list_said(report: ReportInput) -> list[tuple[StepCertainty, str]]:
    return [(step.standing, step.words) for step in make_first_page(report).steps]


def test_what_is_slower_elsewhere_is_weighed_and_not_advised() -> None:
    weigh = "Weigh the derived settings against stock: faster on tpcb-like, slower on select-only."
    for report in (build_mixed(), build_mixed(is_loud=True)):
        step, *others = make_first_page(report).steps
        assert (step.standing, step.words, others) == (StepCertainty.WEIGH, weigh, [])
        assert step.gain.startswith("TPS +4")
        assert step.caution.startswith("Consider the cost: TPS -2")
        assert "Trials of 10 s were too short" in step.caution
    variants = (VariantSpec(name="a"), VariantSpec(name="b", settings={"commit_delay": 50}))
    study = Study(
        data=DataSpec(scale=100),
        workload=tuple(WorkloadSpec(name=name, clients=8) for name in ("tpcb-like", "select-only")),
        variant=variants,
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {"tpcb-like": {"b": Effect(tps=0.7)}, "select-only": {"b": Effect(tps=1.3)}}
    report = compose(study, effects, rounds=30, noise_ratio=0.02, round_s=2.9)
    weigh = "Weigh b against a: faster on select-only, slower on tpcb-like."
    assert _list_said(report) == [(StepCertainty.WEIGH, weigh)]
    # The parts of one load are weighed in the same way: each has clients who wait.
    ((standing, words),) = _list_said(build_split())
    assert standing is StepCertainty.WEIGH
    assert words.endswith(": faster on part select-only of split, slower on part tpcb-like of split.")


def test_a_layer_that_is_faster_on_a_load_is_not_left_out() -> None:
    layers = {"memory": 1.3, "WAL and checkpoints": 1.3, "planner": 1.0}
    steps = make_first_page(build_mixed(layers=layers)).steps
    assert {step.standing for step in steps} == {StepCertainty.WEIGH}
    weigh = "Weigh the layer memory of the derived settings: faster on tpcb-like, slower on select-only."
    assert [step.words for step in steps if "layer" in step.words] == [weigh]


@pytest.mark.parametrize(
    ("report", "section"),
    [
        (build_split(), "parts"),
        (build_with_standbys(1, {"synchronous_commit": "on"}), "standbys"),
        (build_pooled(FIGURES), "poolers"),
    ],
    ids=("parts", "standbys", "pooler"),
)
def test_whoever_reads_the_first_page_only_reads_the_answer(report: ReportInput, section: str) -> None:
    page = print_html(build_document(report), vega_js="")
    places = [page.index(f) for f in ('id="first-page"', '<nav aria-label="Contents">', f'id="{section}"')]
    assert places == sorted(places)


def test_a_machine_that_tells_identical_variants_apart_proves_nothing() -> None:
    report = build_paired(is_hard=True)
    assert StepCertainty.PROVEN not in _standings(make_first_page(report))
    assert _warns_of_figures(report)


def test_the_first_page_says_why_its_figures_should_not_be_used() -> None:
    grave = msgspec.structs.replace(_PROVEN, severity=Severity.CRITICAL, rule="")
    claims = ("Something else was running.", "Trial 2 failed.", "Trial 3 failed.", "Trial 4 failed.")

    def said(count: int) -> str:
        findings = tuple(msgspec.structs.replace(grave, claim=claim) for claim in claims[:count] for _ in range(2))
        report = msgspec.structs.replace(build_report(), findings=findings)
        return next(words for block in build_head(report) if "should not" in (words := block.words))

    warning = "These figures should not be used as they are. Something else was running."
    assert said(1) == warning, "of two loads it is one reason"
    assert said(3) == f"{warning} Trial 2 failed. Trial 3 failed."
    assert said(4) == f"{warning} Trial 2 failed. “Measurement quality” has 2 more reasons."


def _warns_of_figures(report: ReportInput) -> bool:
    return any("should not be used as they are" in block.words for block in build_head(report))


def test_a_result_that_speaks_against_settings_does_not_speak_against_the_figures() -> None:
    report = build_derived(is_hard=True)
    assert any(one.severity is Severity.CRITICAL for one in report.findings)
    assert not _warns_of_figures(report)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (build_derived, "Use the derived settings."),
        (build_layers, "Use the derived settings."),
    ],
)
def test_verdicts_lead_to_steps(build: Callable[[], ReportInput], words: str) -> None:
    step = make_first_page(build()).steps[0]
    assert step.standing is StepCertainty.PROVEN
    assert step.words.startswith(words)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (build_report(names=("tpcb-like",), rounds=1, failed=(1,)), "no trial is finished"),
        (build_report(names=("tpcb-like",), is_bare=True), "nothing was sampled while it ran"),
    ],
)
def test_what_was_not_judged_is_said_with_the_reason(report: ReportInput, reason: str) -> None:
    (words,) = make_first_page(report).not_judged
    assert words.endswith(f"was not determined: {reason}.")


def test_where_variants_alternate_a_bench_of_the_same_load_is_named() -> None:
    report = build_switchback()
    for workload, words in zip(report.analysis.workloads, make_first_page(report).not_judged, strict=True):
        assert f"`pgdyno bench --stock-only --clients {workload.load.clients} " in words
        assert f"--scale {report.record.plan.scale} " in words
        assert f"--workload {workload.name}` shows it." in words


def test_of_a_given_server_no_bench_of_pgdynos_own_is_named() -> None:
    report = build_switchback()
    study = msgspec.structs.replace(report.record.study, server=ServerSpec(kind=ServerKind.GIVEN, dsn="service=bench"))
    given = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, study=study))
    (words,) = make_first_page(given).not_judged
    assert words.endswith('; paired trials show it (design = "paired" in [experiment]).')


def test_limits_come_first_then_the_gravest_and_the_rest_is_folded() -> None:
    page = make_first_page(build_explained(is_hard=True))
    assert [one.rule for one in page.explained[:3]] == [LIMITS, LIMITS, "cliff"]
    assert (len(page.shown), len(page.explained)) == (3, 8)


def test_of_a_search_only_closed_loops_are_explained() -> None:
    report = build_search("settled")
    names = [workload.name for workload in report.analysis.workloads]
    found = tuple(msgspec.structs.replace(_PROVEN, workload=name, claim=name) for name in names)
    page = _page(*found, report=report)
    assert [one.claim for one in page.explained] == ["tpcb-like, closed loop"]
    assert len(names) > 1


def test_both_variants_of_a_workload_are_called_by_its_name() -> None:
    (one,) = make_first_page(build_explained_comparison()).explained
    assert one.of == "tpcb-like"
    assert len(one.evidence) == 2


def test_of_long_evidence_everybody_reads_the_first_clauses_and_nothing_is_lost() -> None:
    evidence = "; ".join(f"clause {number} of some length with its figure {number * 7} %" for number in range(9))
    (one,) = list_explanations(
        msgspec.structs.replace(build_report(), explanations=(msgspec.structs.replace(_PROVEN, evidence=evidence),))
    )
    assert len(one.lead[0]) <= 150
    assert "; ".join((*one.lead, *one.rest)) == evidence


def test_what_speaks_against_a_rival_is_said_of_each_workload_where_it_differs() -> None:
    own = {"tpcb-like": "only 6 %", "simple-update": "only 24 %"}
    found = (
        msgspec.structs.replace(
            _PROVEN,
            workload=name,
            rivals=(Rival(cause="the CPUs", against=against), Rival(cause="locks", against="only 1 %")),
        )
        for name, against in own.items()
    )
    alone = msgspec.structs.replace(_PROVEN, workload="select-only", rivals=(Rival(cause="reads", against="nothing"),))
    (one,) = list_explanations(msgspec.structs.replace(build_report(), explanations=(*found, alone)))
    assert make_claim(one).rivals == (
        "the CPUs (tpcb-like: only 6 %; simple-update: only 24 %)",
        "locks (tpcb-like, simple-update: only 1 %)",
        "reads (select-only: nothing)",
    )


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_an_old_record_is_explained_as_far_as_it_goes_and_nothing_is_said_twice(name: str) -> None:
    report = compose_report(RecordStore(RECORDS / name)).report
    page = make_first_page(report)
    assert page.explained or page.not_judged
    assert not {one.claim for one in page.explained} & {one.claim for one in list_findings(report)}
    document = make_explanation(report)
    assert [one.name for one in document.workloads] == [one.name for one in report.analysis.workloads]
    out = io.StringIO()
    Console(file=out, width=80, no_color=True, highlight=False).print(
        print_terminal(build_explanation(report), level=Level.STANDARD)
    )
    # A long path of the record is neither broken nor shortened.
    lines, last = out.getvalue().split("charts and figures:")
    assert last.strip() == str(RECORDS / name / "report.html")
    assert max(map(len, lines.splitlines())) <= 80


def make_generator(
    number: int, *, sent_per_s: float = 1000.0, thread_ratio: float = 0.2, clock: ClockFit | None = None
) -> GeneratorFigures:
    return GeneratorFigures(
        host=f"load{number}", clients=4, threads=1, tps=sent_per_s, p99_ms=1.0, cpu_s=1.0, stream_cpu_s=0.1,
        thread_ratio=thread_ratio, machine_cpu_ratio=0.3, sent_per_s=sent_per_s, empty_per_s=10_000.0, clock=clock,
    )  # fmt: skip


def test_the_clock_of_each_load_host_has_an_offset_of_its_own() -> None:
    def fit(offset_s: float) -> ClockFit:
        return ClockFit(at_s=0.0, offset_s=offset_s, drift_ratio=0.0, uncertainty_s=0.0002, exchange_count=9)

    report = build_report(names=("tpcb-like",), rounds=2)
    (workload,) = report.analysis.workloads
    trials = tuple(
        msgspec.structs.replace(
            trial, generators=(make_generator(1, clock=fit(later_s)), make_generator(2, clock=fit(1000.0 + later_s)))
        )
        for trial, later_s in zip(workload.trials, (0.0, 0.5), strict=True)
    )
    analysis = msgspec.structs.replace(report.analysis, workloads=(msgspec.structs.replace(workload, trials=trials),))
    assert report.record.host is not None
    hosts = tuple(
        LoadHostFacts(
            name=name, ssh=name, python="3.11", boot_id=name, is_server_host=False, facts=report.record.host,
            pgbench="pgbench", version="18.0", empty_tps=10_000.0, empty_clients=4, round_trip_s=0.0001,
        )
        for name in ("load1", "load2")
    )  # fmt: skip
    record = msgspec.structs.replace(report.record, load_hosts=hosts)
    table = load_hosts_table(msgspec.structs.replace(report, record=record, analysis=analysis))
    assert table is not None
    assert "pgdyno's: load1 by 0 s ± 0.2 ms; load2 by 1,000.0000 s ± 0.2 ms. Times are off by 0.200 ms" in table.remark
    assert "A thread that waits for a CPU counts as busy." in table.remark


def test_load_hosts_that_were_not_the_limit_are_said_not_to_be() -> None:
    def say(*sent_per_s: float, thread_ratio: float = 0.2) -> str:
        report = build_report(names=("tpcb-like",), rounds=1)
        (workload,) = report.analysis.workloads
        hosts = tuple(
            make_generator(number, sent_per_s=each, thread_ratio=thread_ratio)
            for number, each in enumerate(sent_per_s, start=1)
        )
        trials = tuple(msgspec.structs.replace(trial, generators=hosts) for trial in workload.trials)
        loaded = msgspec.structs.replace(workload, trials=trials)
        analysis = msgspec.structs.replace(report.analysis, workloads=(loaded,))
        out = io.StringIO()
        document = build_document(msgspec.structs.replace(report, analysis=analysis))
        Console(file=out, width=200, no_color=True, highlight=False).print(
            print_terminal(document, level=Level.HEADLINE)
        )
        return out.getvalue()

    room = "No load host was the limit: each sent at most 20 % of the statements that it can send."
    assert room in say(1000.0, 2000.0)
    assert "The load host was not the limit: it sent at most" in say(1000.0)
    for words in (say(1000.0, 6000.0), say(1000.0, thread_ratio=0.9), say()):
        assert "the limit: " not in words
