"""The section on failovers, the verdicts on the time without service, and the finding on what was lost."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.failover import FailoverFigures
from pgdyno.explain.doubts.failover import find_failover_doubts
from pgdyno.explain.finding import Severity
from pgdyno.plan.types import PlannedFailover
from pgdyno.record.types import SettingFact
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.sections.failover import build_failover
from pgdyno.report.sections.next_steps import list_steps
from pgdyno.report.table import Table
from pgdyno.spec.failover import FailoverKind
from tests.report.build_comparison import build_paired


def make_figures(*, lost: int | None = 0) -> FailoverFigures:
    return FailoverFigures(
        standby="standby1",
        outage_s=0.3,
        load_outage_s=0.4,
        noticed_s=0.01,
        ending_s=0.02,
        replay_s=0.0,
        promotion_s=0.2,
        first_write_s=0.05,
        unreplayed_bytes=0,
        confirmed_probes=100,
        lost_probes=0,
        lost_transactions=lost,
        after_tps=100.0,
    )


def make_report(*, lost: int = 0, **settings: str) -> ReportInput:
    report = build_paired()
    planned = PlannedFailover(kind=FailoverKind.CRASH, at_s=5.0, after_s=5.0, promote_within_s=60.0)
    plan = msgspec.structs.replace(
        report.record.plan,
        workloads=tuple(msgspec.structs.replace(one, failover=planned) for one in report.record.plan.workloads),
    )
    facts = tuple(
        SettingFact(name=name, value=value, unit=None, boot_value="", source="configuration file")
        for name, value in settings.items()
    )
    workloads = tuple(
        msgspec.structs.replace(
            workload,
            trials=tuple(
                msgspec.structs.replace(
                    trial,
                    failover=make_figures(lost=lost),
                    record=msgspec.structs.replace(trial.record, settings=facts),
                )
                for trial in workload.trials
            ),
        )
        for workload in report.analysis.workloads
    )
    return msgspec.structs.replace(
        report,
        record=msgspec.structs.replace(report.record, plan=plan),
        analysis=msgspec.structs.replace(report.analysis, workloads=workloads),
    )


def test_each_load_has_a_row_and_a_study_without_failovers_no_section() -> None:
    (section,) = build_failover(make_report())
    _, outages, parts = section.blocks
    assert isinstance(outages, Table)
    assert isinstance(parts, Table)
    names = {workload.name for workload in make_report().analysis.workloads}
    for table in (outages, parts):
        assert {row[0].text for row in table.rows} == names
    assert outages.rows[0][1].text == "0.300 s"
    first = make_report().analysis.workloads[0]
    assert (outages.rows[0][-1].text, outages.rows[0][-1].detail) == ("0", f"of {len(first.trials)}")
    assert list(build_failover(build_paired())) == []


def test_lost_transactions_are_those_of_the_failovers_in_which_they_were_counted() -> None:
    report = make_report(lost=7)
    workload, *others = report.analysis.workloads
    first, *rest = workload.trials
    uncounted = (msgspec.structs.replace(trial, failover=make_figures(lost=None)) for trial in rest)
    partly = msgspec.structs.replace(workload, trials=(first, *uncounted))
    analysis = msgspec.structs.replace(report.analysis, workloads=(partly, *others))
    for shown, detail in (
        (report, ""),
        (msgspec.structs.replace(report, analysis=analysis), f"counted in 1 of {len(workload.trials)} failovers"),
    ):
        (section,) = build_failover(shown)
        outages = section.blocks[1]
        assert isinstance(outages, Table)
        cell = outages.rows[0][5]
        assert (cell.text, cell.detail, bool(cell.note)) == (
            "7" if detail else f"{7 * len(workload.trials)}",
            detail,
            bool(detail),
        )


def test_what_was_lost_is_a_finding_and_graver_where_commits_wait() -> None:
    report = make_report()
    assert list(find_failover_doubts(report.record, report.analysis)) == []
    for settings, severity, words in (
        ({}, Severity.WARNING, "commits wait for no standby"),
        ({"synchronous_standby_names": "*", "synchronous_commit": "local"}, Severity.WARNING, "wait for no standby"),
        ({"synchronous_standby_names": "*"}, Severity.CRITICAL, "although commits wait"),
    ):
        report = make_report(lost=2, **settings)
        findings = list(find_failover_doubts(report.record, report.analysis))
        assert len(findings) == len(report.analysis.workloads)
        assert {finding.severity for finding in findings} == {severity}
        assert not any(finding.spoils_figures for finding in findings)
        assert all(words in finding.claim for finding in findings)
        # Of several that commits may wait for, the one that took over may be one.
        assert not any("took over is none" in finding.advice for finding in findings)


def test_no_variant_is_advised_where_the_time_without_service_is_undecided() -> None:
    report = build_paired()
    (plain,) = answer_study(report)
    judged = tuple(
        msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, metric="outage_s"))
        for one in plain.answers
        if one.verdict is not None
    )
    (faster,) = list_steps(report, (plain,), ())
    (away,) = list_steps(report, (msgspec.structs.replace(plain, answers=judged),), ())
    assert faster.words.startswith("Stay with ")
    assert away.words.startswith(
        "Look at what was lost before you choose: no variant is proven to be away for less time"
    )
