from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.doubts.comparison import DURABILITY
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.explain.finding import Severity
from pgdyno.record.types import SettingFact, StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.spec.variant import DesignKind
from tests.given import SERVER
from tests.report.build_comparison import build_client_sweep, build_paired, build_product, build_switchback


def _claims(report: ReportInput) -> list[str]:
    return [finding.claim for finding in find_doubts(report.record, report.analysis)]


@pytest.mark.parametrize("build", [build_switchback, build_paired, build_product, build_client_sweep])
def test_advice_for_benches_is_not_given_to_comparisons(build: Callable[[], ReportInput]) -> None:
    report = build()
    found = find_doubts(report.record, report.analysis)
    assert not any("--rounds" in finding.advice for finding in found)
    assert not any("The study is not complete" in finding.claim for finding in found)


def test_an_end_with_questions_open_is_told_and_one_that_spent_its_time_is_not() -> None:
    report = build_paired()
    words = "ended with questions open"
    assert any(words in claim for claim in _claims(report))
    last = max(trial.round for trial in report.record.plan.trials)
    finished = []
    for workload in report.analysis.workloads:
        trials = [
            msgspec.structs.replace(
                trial,
                record=msgspec.structs.replace(
                    trial.record, planned=msgspec.structs.replace(trial.record.planned, round=last)
                ),
            )
            for trial in workload.trials
        ]
        finished.append(msgspec.structs.replace(workload, trials=tuple(trials)))
    spent = msgspec.structs.replace(
        report, analysis=msgspec.structs.replace(report.analysis, workloads=tuple(finished))
    )
    assert not any(words in claim for claim in _claims(spent))
    # Two rounds of 24, and a load without a status.
    sweep = build_client_sweep()
    # Without a whole round there is no curve, either.
    bare = msgspec.structs.replace(sweep, analysis=msgspec.structs.replace(sweep.analysis, sweeps={}))
    for report in (sweep, bare):
        assert any("sweep over clients ended early" in claim for claim in _claims(report))
        assert not any(words in claim for claim in _claims(report))


@pytest.mark.parametrize(("build", "turns"), [(build_paired, "rounds"), (build_switchback, "blocks of load")])
def test_an_early_end_counts_what_the_study_is_made_of(build: Callable[[], ReportInput], turns: str) -> None:
    report = build()
    (early,) = (one for one in find_doubts(report.record, report.analysis) if "questions open" in one.claim)
    assert early.evidence.endswith(f"{turns} were run")


def test_identical_variants_that_were_told_apart_come_first() -> None:
    report = build_paired(is_hard=True)
    first = find_doubts(report.record, report.analysis)[0]
    assert (first.severity, first.workload) == (Severity.CRITICAL, "tpcb-like")
    assert "Two identical variants were told apart" in first.claim
    assert not any("told apart" in claim for claim in _claims(build_paired()))


def _failing(report: ReportInput, tries: dict[int, int]) -> ReportInput:
    """The report of a study whose trials with these numbers failed so often before."""
    workloads = tuple(
        msgspec.structs.replace(
            workload,
            trials=tuple(
                msgspec.structs.replace(trial, failures=tries.get(trial.record.planned.number, 0))
                for trial in workload.trials
            ),
        )
        for workload in report.analysis.workloads
    )
    return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, workloads=workloads))


def _observed(report: ReportInput, number: int) -> ReportInput:
    """The report of a study that only observed the trial with this number."""
    workloads = tuple(
        msgspec.structs.replace(
            workload,
            trials=tuple(
                msgspec.structs.replace(
                    trial,
                    record=msgspec.structs.replace(
                        trial.record, planned=msgspec.structs.replace(trial.record.planned, round=0)
                    ),
                )
                if trial.record.planned.number == number
                else trial
                for trial in workload.trials
            ),
        )
        for workload in report.analysis.workloads
    )
    return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, workloads=workloads))


def test_what_failed_before_it_was_run_again_is_told() -> None:
    report, words = build_paired(), "Trials failed and were run again"
    assert not any(words in claim for claim in _claims(report))
    trials = [trial.record for workload in report.analysis.workloads for trial in workload.trials]
    numbers: dict[str, list[int]] = {}
    for one in trials:
        if one.error is None:
            numbers.setdefault(one.planned.variants[0], []).append(one.planned.number)
    (first, a), (second, b) = numbers.items()
    assert f"{words}: 2 of {second}." in _claims(_failing(report, {b[0]: 2}))
    assert f"{words}: 3 of {first}, 1 of {second}." in _claims(_failing(report, {a[0]: 1, a[1]: 2, b[0]: 1}))
    # What failed for good is told by itself.
    (ended,) = (one.planned.number for one in trials if one.error is not None)
    assert not any(words in claim for claim in _claims(_failing(report, {ended: 1})))
    # Verdicts do not rest on what was only observed.
    assert not any(words in claim for claim in _claims(_failing(_observed(report, b[0]), {b[0]: 1})))
    # What ended a live round for all its trials is no variant's, and one thing.
    experiment = report.record.plan.experiment
    assert experiment is not None
    plan = msgspec.structs.replace(
        report.record.plan, experiment=msgspec.structs.replace(experiment, design=DesignKind.LIVE)
    )
    live = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, plan=plan))
    rounds = {one.planned.number: one.planned.round for one in trials if one.error is None}
    tries = {number: 1 for number, round_ in rounds.items() if round_ == rounds[b[0]]}
    assert len(tries) > 1
    assert f"{words}: 1 whole round." in _claims(_failing(live, tries))
    assert f"{words}: 1 of {second}, 1 whole round." in _claims(_failing(live, tries | {b[0]: 2}))
    block = build_switchback()
    number = block.analysis.workloads[0].trials[0].record.planned.number
    assert f"{words}: 1 block." in _claims(_failing(block, {number: 1}))


def test_what_is_not_decided_because_trials_failed_is_told() -> None:
    report = build_paired()
    (comparison,) = report.analysis.comparisons
    question = next(one for one in comparison.questions if one.metric == comparison.primary)
    n = 12
    ratios = tuple(0.05 + 0.01 * (-1) ** place for place in range(n))
    verdict = msgspec.structs.replace(question.verdict, kind=VerdictKind.INCONCLUSIVE)

    def tell(log_ratios: tuple[float, ...], extremes: tuple[tuple[float, ...], ...]) -> str:
        asked = msgspec.structs.replace(question, log_ratios=log_ratios, extremes=extremes, verdict=verdict)
        compared = msgspec.structs.replace(comparison, questions=(asked,))
        analysis = msgspec.structs.replace(report.analysis, comparisons=(compared,))
        (number, *_) = (one.record.planned.number for one in analysis.workloads[0].trials if one.record.error is None)
        told = _failing(msgspec.structs.replace(report, analysis=analysis), {number: 1})
        found = find_doubts(told.record, told.analysis)
        return next(one.evidence for one in found if one.claim.startswith("Trials failed"))

    words = f"not decided because of that on {comparison.workload}: {question.variant}"
    wide = (-0.5, *ratios[1:])
    assert tell(ratios, (wide, ratios)).endswith(words)
    # Without the failures, too, it is not decided.
    open_ones = tuple(0.1 * (-1) ** place for place in range(n))
    assert words not in tell(open_ones, ((-0.5, *open_ones[1:]), open_ones))
    assert words not in tell(ratios, ())
    assert words not in tell(ratios[:1], (wide[:1], ratios[:1]))
    # Likewise of what would be equivalent.
    alike = tuple(0.0001 * (-1) ** place for place in range(n))
    assert tell(alike, ((-0.5, *alike[1:]), alike)).endswith(words)


def test_a_sweep_over_clients_has_no_verdicts_that_allow_for_failures() -> None:
    sweep, paired = build_client_sweep(), build_paired()
    for report, words in ((sweep, "figures are of the trials that finished"), (paired, "verdicts allow for")):
        trials = [trial.record for trial in report.analysis.workloads[0].trials if trial.record.error is None]
        number = next(one.planned.number for one in trials if not one.planned.is_observed)
        told = _failing(report, {number: 1})
        found = find_doubts(told.record, told.analysis)
        assert next(one.evidence for one in found if one.claim.startswith("Trials failed")).startswith(words)


def test_rounds_that_were_cut_are_told() -> None:
    report, words = build_paired(), "Rounds were stopped before their end and left out: 1."
    assert words not in _claims(report)
    experiment = report.record.plan.experiment
    assert experiment is not None
    (first, *_), last = (
        [
            trial.number
            for trial in report.record.plan.trials
            if trial.round == number and trial.variants[0] == experiment.reference.name
        ]
        for number in (1, 2)
    )

    def leave_out(left: set[int]) -> ReportInput:
        workloads = tuple(
            msgspec.structs.replace(
                workload,
                trials=tuple(trial for trial in workload.trials if trial.record.planned.number not in left),
            )
            for workload in report.analysis.workloads
        )
        return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, workloads=workloads))

    assert words in _claims(leave_out({first}))
    # None follows: more of the last round may come.
    assert words not in _claims(leave_out({last[-1]}))


def test_durability_given_up_by_some_is_a_price_and_by_all_a_warning_of_all_figures() -> None:
    some = [claim for claim in _claims(build_switchback()) if "committed" in claim]
    assert some == ["Variants that keep what was committed are compared with others that may not."]
    hard = build_paired(is_hard=True)
    (told,) = (one for one in find_doubts(hard.record, hard.analysis) if one.rule == DURABILITY)
    assert told.claim == "Every variant gives up durability: synchronous_commit = off."
    assert told.evidence.startswith("A crash loses the last transactions")
    assert not any("urab" in claim for claim in _claims(build_paired()))


def test_copies_of_live_loads_that_crowd_each_other_in_one_server_are_told() -> None:
    report = build_paired()
    experiment, dataset = report.record.plan.experiment, report.record.dataset
    assert experiment is not None
    assert dataset is not None
    copies = len(experiment.variants) + 1
    live = msgspec.structs.replace(experiment, design=DesignKind.LIVE)
    plan = msgspec.structs.replace(report.record.plan, experiment=live)

    def find(record: StudyRecord, *, copy_bytes: int, analysis: StudyAnalysis = report.analysis) -> list[str]:
        sized = msgspec.structs.replace(record, dataset=msgspec.structs.replace(dataset, total_bytes=copy_bytes))
        found = find_doubts(sized, analysis)
        return [finding.evidence for finding in found if "room in shared_buffers" in finding.claim]

    given = msgspec.structs.replace(report.record, plan=plan, given=SERVER)
    paired = msgspec.structs.replace(report.record, given=SERVER)
    own = msgspec.structs.replace(report.record, plan=plan)
    seen = next(one.record.values for each in report.analysis.workloads for one in each.trials)
    fits = int(seen.get("shared_buffers", "16384")) * 8192 // copies
    (evidence,) = find(given, copy_bytes=fits + 1)
    assert evidence.startswith(f"{copies} copies of the data")
    assert [find(given, copy_bytes=fits), find(paired, copy_bytes=fits + 1), find(own, copy_bytes=fits + 1)] == [[]] * 3
    # A server that was built with blocks of 32 kB counts shared_buffers in these.
    blocks = SettingFact(name="shared_buffers", value="16384", unit="32kB", boot_value="4096", source="")
    workloads = []
    for each in report.analysis.workloads:
        trials = (
            msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, settings=(blocks,)))
            for one in each.trials
        )
        workloads.append(msgspec.structs.replace(each, trials=tuple(trials)))
    large = msgspec.structs.replace(report.analysis, workloads=tuple(workloads))
    room = 16384 * 32768 // copies
    assert find(given, copy_bytes=room, analysis=large) == []
    assert "shared_buffers are 512 MB" in find(given, copy_bytes=room + 1, analysis=large)[0]
