"""What was predicted, what of the disk was used, and the disk's card, in every form of a report."""

from __future__ import annotations

import html
import io
import json
import re

import jsonschema
import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.disk.demand import DiskDemand, DiskUse, UseKind
from pgdyno.analyse.prediction import READS, TPS, JudgedPrediction
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.flow.disk_view import view_card
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import add_declared_disk
from pgdyno.record.predictions import Prediction, PredictionInput
from pgdyno.report.documents.report import make_schema, render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.disk.declared import compare_with_declared, declared_tables
from pgdyno.report.sections.disk.uses import describe_uses, uses_table
from pgdyno.report.sections.predictions import describe_predictions, predictions_table
from pgdyno.report.study import build_report as build_report_document
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.disk_cards import make_card, make_runs
from tests.report.build import build_report

REACHED = "Commits use 71 % of the flush capacity of this disk; reads are at 3 %; writes are at 20 %"


def use(kind: UseKind, ratio: float, unit: str = "/s") -> DiskUse:
    return DiskUse(kind=kind, used=1000.0 * ratio, limit=1000.0, unit=unit, how="random read")


def make_join(*uses: DiskUse) -> DiskDemand:
    return DiskDemand(
        device="nvme0n1",
        busy_ratio=0.4,
        read_await_ms=0.5,
        write_await_ms=None,
        flush_await_ms=None,
        missed_blocks_per_s=200.0,
        uses=uses,
    )


ALL = make_join(
    use(UseKind.FLUSHES, 0.71, "tps"),
    use(UseKind.WAL, 0.08, "bytes/s"),
    use(UseKind.READS, 0.03),
    use(UseKind.READ_BYTES, 0.01, "bytes/s"),
    use(UseKind.WRITES, 0.2),
)


def judged(name: str, value: float, measured: float | None) -> JudgedPrediction:
    return JudgedPrediction(
        prediction=Prediction(
            name=name,
            value=value,
            low=None,
            high=None,
            unit="tps",
            model="group commit in a closed loop",
            inputs=(PredictionInput(name="flush", value=0.0018, unit="s", how="disk card"),),
        ),
        measured=measured,
        error_ratio=None if measured is None else value / measured - 1,
        reason=None if measured is not None else "not measured",
    )


@pytest.fixture(scope="module")
def report() -> ReportInput:
    """A bench of which everything is known."""
    plain = build_report(names=("tpcb-like",), rounds=3, duration_s=20, failed=(2,))
    (workload,) = plain.analysis.workloads
    trials = tuple(_know(trial) if trial.tps is not None else trial for trial in workload.trials)
    workloads = (msgspec.structs.replace(workload, trials=trials),)
    return msgspec.structs.replace(
        plain,
        analysis=msgspec.structs.replace(plain.analysis, workloads=workloads),
        disk=view_card(make_card()),
    )


def _know(trial: TrialAnalysis) -> TrialAnalysis:
    assert trial.tps is not None
    predictions = (judged(TPS, trial.tps * 1.04, trial.tps), judged(READS, 1.24, None))
    return msgspec.structs.replace(trial, disk=ALL, predictions=predictions)


def workload_of(report: ReportInput) -> WorkloadAnalysis:
    return report.analysis.workloads[0]


def test_every_form_says_what_the_disk_allows(report: ReportInput) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(print_terminal(build_report_document(report)))
    assert isinstance(console.file, io.StringIO)
    for shown in (
        print_markdown(build_report_document(report)),
        print_html(build_report_document(report), vega_js=""),
        console.file.getvalue(),
    ):
        assert REACHED in " ".join(shown.split())


def test_pages_have_card_uses_and_predictions(report: ReportInput) -> None:
    for shown in (print_markdown(build_report_document(report)), print_html(build_report_document(report), vega_js="")):
        for words in ("Data disk", "Use of the data disk", "Predictions", "blocks read, per transaction", "+4 %"):
            # A number keeps its unit on its line.
            assert words in shown.replace("\N{NO-BREAK SPACE}", " ")


def test_columns_of_medians_do_not_pretend_to_fit_each_other(report: ReportInput) -> None:
    """100 against 100 and 300, and 400 against 200: medians 100, 200 and 0 %, which no row of figures could give."""
    trial = workload_of(report).trials[0]
    pairs = ((100.0, 100.0), (100.0, 300.0), (400.0, 200.0))
    trials = tuple(msgspec.structs.replace(trial, predictions=(judged(TPS, *pair),)) for pair in pairs)
    table = predictions_table(msgspec.structs.replace(workload_of(report), trials=trials))
    assert table is not None
    assert [cell.text for cell in table.rows[0][1:4]] == ["100", "200", "0 %"]
    assert table.columns[3].title == "median of the trials' own errors"


def test_json_has_them_trial_by_trial(report: ReportInput) -> None:
    document = json.loads(render_json(report))
    jsonschema.Draft202012Validator(make_schema()).validate(document)
    first, failed, _ = document["workloads"][0]["trials"]
    assert first["disk"]["uses"][0] == {
        "kind": "flushes", "used": 710.0, "limit": 1000.0, "unit": "tps", "ratio": 0.71, "how": "random read",
        "lasts": None, "lasting_ratio": None,
    }  # fmt: skip
    assert first["predictions"][0]["error_ratio"] == pytest.approx(0.04)
    assert (failed["disk"], failed["predictions"]) == (None, [])
    assert {entry["key"] for entry in document["disk"]["entries"]} >= {"random_read_iops", "flushes_per_s"}


@pytest.fixture(scope="module")
def declared(report: ReportInput) -> ReportInput:
    """The same of a study that declares a disk of which more was measured than lasts."""
    (workload,) = report.analysis.workloads
    read = msgspec.structs.replace(use(UseKind.READS, 0.6), lasts=800.0)
    through = DiskUse(
        kind=UseKind.INSTANCE_IOPS, used=9000, limit=12_000, unit="/s", how="c7g.2xlarge, reads and writes together"
    )
    join = make_join(use(UseKind.FLUSHES, 0.71, "tps"), read, through)
    trials = tuple(msgspec.structs.replace(trial, disk=trial.disk and join) for trial in workload.trials)
    disk = DiskSpec(volume="gp3", count=8, size="50GB", raid=10, filesystem="ext4", volume_latency_ms=1.85)
    card = add_declared_disk(
        make_card(runs=make_runs(level=lambda one, _: 1.6 if one.pattern is Pattern.RANDOM_READ else 1.0)),
        HostSpec(instance="c7g.2xlarge", disk=disk),
        0,
    )
    return msgspec.structs.replace(
        report,
        analysis=msgspec.structs.replace(
            report.analysis, workloads=(msgspec.structs.replace(workload, trials=trials),)
        ),
        disk=view_card(card),
    )


def test_every_form_holds_the_disk_against_what_is_declared(declared: ReportInput) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(print_terminal(build_report_document(declared)))
    assert isinstance(console.file, io.StringIO)
    pages = [
        print_markdown(build_report_document(declared)),
        html.unescape(print_html(build_report_document(declared), vega_js="")),
    ]
    for shown in (*pages, console.file.getvalue()):
        words = " ".join(shown.split())
        assert "Declared of this disk: 8 × gp3 of 50GB, in RAID 10, ext4, on c7g.2xlarge." in words
        assert re.search(r"random reads, 8 kB: 19,\d00 IOPS of 12,000 IOPS, 1\d\d % \(burst\);", words)
        assert "The declared sustained limits are lower; of them, trials used 75 % of random reads." in words
        assert "Reads and writes together use 75 % of the I/Os that c7g.2xlarge sustains." in words
    for shown in pages:
        for words in ("Declared limits of the data disk", "Data disk, measured and declared", "share used", "a burst, paid for with credits, and ends",
                      "The declared file system differs from the one found: ext4, not xfs.", "$32.00 a month"):  # fmt: skip
            assert words in shown, words
    document = json.loads(render_json(declared))
    jsonschema.Draft202012Validator(make_schema()).validate(document)
    assert document["disk"]["ceilings"]["random_read_iops"]["value"] == 12_000
    assert {one["standing"] for one in document["disk"]["efficiencies"]} == {
        "burst",
        "reached",
        "undecided",
    }
    assert document["workloads"][0]["trials"][0]["disk"]["uses"][1]["lasting_ratio"] == pytest.approx(0.75)


def test_what_is_measured_may_have_no_declared_figure(declared: ReportInput) -> None:
    view = view_card(add_declared_disk(make_card(), HostSpec(disk=DiskSpec(kind="local-ssd")), 0))
    found = compare_with_declared(msgspec.structs.replace(declared, disk=view))
    assert found == ("Declared of this disk: local-ssd.",)


def test_what_is_declared_is_shown_where_nothing_was_measured(declared: ReportInput) -> None:
    host = None if declared.disk is None else declared.disk.card.host
    study = msgspec.structs.replace(declared.record.study, host=host)
    record = msgspec.structs.replace(declared.record, study=study)
    bare = msgspec.structs.replace(declared, record=record, disk=None)
    shown = print_markdown(build_report_document(bare))
    assert "Declared limits of the data disk" in shown
    assert "nothing is compared with the declaration" in shown
    nothing = msgspec.structs.replace(declared, disk=None)
    assert (declared_tables(nothing), compare_with_declared(nothing)) == ((), ())


def test_a_report_without_a_card_says_nothing_of_it() -> None:
    plain = build_report(names=("tpcb-like",), rounds=2, duration_s=20)
    assert json.loads(render_json(plain))["disk"] is None
    assert "Data disk" not in print_markdown(build_report_document(plain))
    assert describe_uses(workload_of(plain)) == ()
    assert (uses_table(workload_of(plain)), predictions_table(workload_of(plain))) == (None, None)
    assert describe_predictions(workload_of(plain)) is None


@pytest.mark.parametrize(
    ("uses", "sentence"),
    [
        ((use(UseKind.FLUSHES, 1.2),), "Commits use 120 % of the flush capacity of this disk (flushes were faster here than when the card was made)."),
        ((use(UseKind.READS, 0.004), use(UseKind.WAL, 0.5)), "Of this disk's capacity, reads are at less than 1 %."),
        ((use(UseKind.READS, 0.1), use(UseKind.READ_BYTES, 0.3)), "Of this disk's capacity, reads are at 30 %."),
    ],
)  # fmt: skip
def test_sentences(report: ReportInput, uses: tuple[DiskUse, ...], sentence: str) -> None:
    workload = workload_of(report)
    trials = tuple(msgspec.structs.replace(trial, disk=make_join(*uses)) for trial in workload.trials)
    assert describe_uses(msgspec.structs.replace(workload, trials=trials)) == (sentence,)


def test_errors_are_medians_over_trials(report: ReportInput) -> None:
    assert describe_predictions(workload_of(report)) == "predicted: TPS 4 % too high"
    table = predictions_table(workload_of(report))
    assert table is not None
    tps, reads = table.rows
    assert (tps[3].text, tps[4].text) == ("+4 %", "2")
    assert (reads[2].text, reads[2].note) == ("—", "not measured")
