"""From a record to its reports: read, analyse, find doubts, render. Nothing is measured.

`report.html`, `report.md` and `report.json` are files of the record. Writing them again replaces them and changes nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.study import analyse_study, find_capacities
from pgdyno.analyse.study_types import ScalingStudy, StudyAnalysis
from pgdyno.conduct.cards.limits import read_limits
from pgdyno.conduct.progress import count_trials
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, InterruptedStudyError, PgdynoError, SpecError, why, with_program
from pgdyno.explain.commands import is_confirmable
from pgdyno.explain.confirmation import Confirmed, confirm_analysis, confirm_findings, judge_confirmation
from pgdyno.explain.disk.doubts import list_disk_doubts
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.explain.explanations import explain_study
from pgdyno.explain.finding import Finding
from pgdyno.flow.disk_view import view_card, view_further_cards
from pgdyno.flow.terminal import print_document
from pgdyno.plan.plan import REPORT_S
from pgdyno.price.study import PriceOptions, StudyPrice, name_turn, price_study
from pgdyno.record.confirmation import locate_experiment, read_confirmations
from pgdyno.record.durable import write_durably
from pgdyno.record.store import HTML_FILE, JSON_FILE, MARKDOWN_FILE, RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.durability import find_workload_losses, list_variant_losses
from pgdyno.run.host.cache import keep_text


class StudyReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report ready to be shown."""

    report: ReportInput

    def to_json(self) -> bytes:
        """Return the content of report.json."""
        from pgdyno.report.documents.report import render_json  # noqa: PLC0415 - each form loads what it needs

        return render_json(self.report)

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.study import build_report  # noqa: PLC0415 - each form loads what it needs

        return print_document(
            build_report(self.report), level=Level.HEADLINE, recorded=name_recorded_program(self.report.record)
        )


def name_recorded_program(record: StudyRecord) -> str:
    """Return the name under which the user called pgdyno when a record was made."""
    return next(iter(record.command), "pgdyno")


def compose_report(store: RecordStore) -> StudyReport:
    """Read and analyse a record.

    Raises:
        SpecError: It holds no trial that ended.
    """
    card, wal = store.read_cards(0)
    limits, *elsewhere = read_limits(store)
    record, analysis = _analyse(store, limits, elsewhere)
    if analysis is None:
        raise SpecError(
            f"{store.path} has no trial that ended: there is nothing to report",
            hint="wait for the first: it is being measured"
            if store.is_locked
            else f"`pgdyno resume {store.path}` runs them",
        )
    scaling = _analyse_scaling(store.scaling, limits, elsewhere) if store.scaling.exists else None
    analysis = msgspec.structs.replace(analysis, scaling=scaling)
    confirmed = tuple(_read_confirmed(store))
    analysis = confirm_analysis(analysis, confirmed)
    analysis = msgspec.structs.replace(analysis, capacities=find_capacities(record, analysis, limits, elsewhere))
    disk = None if card is None else view_card(card, file=store.card_path)
    further = tuple(view_further_cards(store, record))
    doubts = (
        *find_doubts(record, analysis),
        *list_disk_doubts(() if disk is None else disk.findings),
        *(doubt for one in further for doubt in list_disk_doubts(one.view.findings, of=one.variants)),
    )
    program = name_recorded_program(record)
    explanations = explain_study(record, analysis)
    if is_confirmable(record):
        explanations = confirm_findings(explanations, confirmed, record_dir=str(store.path))
    report = ReportInput(
        record=record,
        analysis=analysis,
        findings=_with_program(doubts, program),
        explanations=_with_program(explanations, program),
        record_dir=str(store.path),
        disk=disk,
        wal=None if wal is None else view_card(wal, file=store.card_paths(0)[1]),
        further=further,
    )
    return StudyReport(report=msgspec.structs.replace(report, price=price_report(report, PriceOptions())))


def _analyse(
    store: RecordStore, limits: DiskLimits | None, elsewhere: Sequence[DiskLimits | None] = ()
) -> tuple[StudyRecord, StudyAnalysis | None]:
    """Analyse a record; return no analysis if no trial has ended."""
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    return record, analyse_study(record, trials, limits=limits, elsewhere=elsewhere) if trials else None


def _read_confirmed(store: RecordStore) -> Iterator[Confirmed]:
    """Read what experiments confirmed of the limits of a record's loads, if their records still exist."""
    for asked in read_confirmations(store):
        beside = locate_experiment(store, asked)
        analysis = _analyse(beside, None)[1] if beside.exists else None
        for comparison in () if analysis is None else analysis.comparisons:
            confirmed = judge_confirmation(asked, comparison, place=str(beside.path))
            if confirmed is not None:
                yield confirmed


def _analyse_scaling(
    store: RecordStore, limits: DiskLimits | None, elsewhere: Sequence[DiskLimits | None]
) -> ScalingStudy | None:
    record, analysis = _analyse(store, limits, elsewhere)
    if analysis is None:
        return None
    variant = record.study.variant[0].title if record.study.variant else None
    return ScalingStudy(record=record, analysis=analysis, variant=variant)


def price_report(report: ReportInput, question: PriceOptions) -> StudyPrice:
    """Price the machine of a report and its transactions."""
    losses = {workload.name: find_workload_losses(report, workload) for workload in report.analysis.workloads}
    losses |= {
        name_turn(workload, variant): lost
        for workload in report.analysis.workloads
        for variant, lost in list_variant_losses(report).items()
    }
    return price_study(report.record, report.analysis, question, losses=losses)


def _with_program(findings: Iterable[Finding], program: str) -> tuple[Finding, ...]:
    """Return findings with the program's name in their commands as it was called."""
    return tuple(
        msgspec.structs.replace(
            one, advice=with_program(one.advice, program), confirm=with_program(one.confirm, program)
        )
        for one in findings
    )


def write_reports(store: RecordStore) -> StudyReport:
    """Write all files of a record's report, and give it."""
    from pgdyno.report.document import name_program  # noqa: PLC0415 - only writing needs charts
    from pgdyno.report.forms.html import bundle_vega, name_vega, print_html  # noqa: PLC0415
    from pgdyno.report.forms.markdown import print_markdown  # noqa: PLC0415
    from pgdyno.report.study import build_report  # noqa: PLC0415

    composed = compose_report(store)
    document = name_program(build_report(composed.report), name_recorded_program(composed.report.record))
    page = print_html(document, vega_js=keep_text(name_vega(), bundle_vega))
    try:
        write_durably(store.path / HTML_FILE, page.encode())
        write_durably(store.path / MARKDOWN_FILE, print_markdown(document).encode())
        write_durably(store.path / JSON_FILE, composed.to_json())
    except OSError as exc:
        raise HostError(
            f"cannot write the report into {store.path}",
            detail=why(exc),
            hint=f"`pgdyno show {store.path}` shows it without writing",
        ) from exc
    return composed


def report_step(store: RecordStore, ui: Ui) -> StudyReport:
    """Analyse and explain what a study measured, and write its report, as the study's last step.

    Raises:
        InterruptedStudyError: The user stopped it.
    """
    ui.begin_step("report", predicted_s=REPORT_S)
    try:
        report = write_reports(store)
    except KeyboardInterrupt as exc:
        raise InterruptedStudyError(
            "stopped while the report was being written",
            detail=f"what was measured is kept in {store.path}",
            hint=f"`pgdyno report {store.path}` writes it",
        ) from exc
    ui.end_step(str(store.path / HTML_FILE))
    return report


@contextmanager
def keeping_what_is_finished(store: RecordStore) -> Iterator[None]:
    """When a step fails or the user stops, report what is finished and say how to go on."""
    try:
        yield
    except PgdynoError as error:
        if store.finished_numbers():
            # A disk that is full has ended the study and would end its report: the first error is the one to tell.
            with suppress(HostError):
                write_reports(store)
                error.hint = f"{error.hint}; the finished trials are reported in {store.path}".removeprefix("; ")
        raise
    except KeyboardInterrupt as exc:
        finished_count, planned_count = count_trials(store)
        raise InterruptedStudyError(
            f"stopped after {finished_count} of {planned_count} trials",
            detail=f"what was finished is kept in {store.path}; nothing was left running",
            hint=f"`pgdyno resume {store.path}` continues",
        ) from exc
