"""`pgdyno explain`: what limits a record's loads and how sure that is; `--confirm` runs the experiment that would tell.

The experiment varies one thing against the load as it was, through the same machinery as `compare`. Its record lies beside
the one that it is about, which keeps where.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.capacity.projection import project_disk
from pgdyno.analyse.disk.demand import DiskLimits, find_limits
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.conduct.given.server import plan_given, ready_server
from pgdyno.conduct.given.trials import run_given_trials
from pgdyno.conduct.logged_ui import LoggedUi
from pgdyno.conduct.machine import check_same, ready_machine
from pgdyno.conduct.study import (
    PlannedStudy,
    begin_record,
    check_new,
    dropping_refused,
    plan_on,
    recording,
    run_trials,
)
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace, choose_record
from pgdyno.errors import HostError, InterruptedStudyError, SpecError
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.intervention import Intervention, choose_intervention
from pgdyno.flow.given.bench import allowed_again, begin_given_record, check_same_server
from pgdyno.flow.report import (
    compose_report,
    keeping_what_is_finished,
    name_recorded_program,
    report_step,
    write_reports,
)
from pgdyno.flow.terminal import print_document
from pgdyno.plan.experiment import Variant
from pgdyno.plan.places import place_of
from pgdyno.plan.variants import most_clients
from pgdyno.record.confirmation import Confirmation, add_confirmation
from pgdyno.record.device.disk_card import read_card
from pgdyno.record.far import read_far
from pgdyno.record.store import STUDY_FILE, RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.spec.initdb import with_choices
from pgdyno.spec.read import read_study
from pgdyno.spec.study import Study, TrialsSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import ExperimentSpec, VariantSpec, make_variant

# Differences that an experiment on a bottleneck is about are large, and what is smaller than this is none of one.
_DETECT = "5%"
# A longer trial does not repeat itself any better, unless checkpoints are what it is about.
_MOST_TRIAL_S, _MOST_WARM_UP_S = 10.0, 3.0
# Of the gain that the share of time allows: the next limit, which nobody knows, takes the rest.
_PART_OF_GAIN = 0.5


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A record's explanation, ready to be shown."""

    report: ReportInput
    change: str = ""
    """Of the machine, that was asked for."""

    def to_json(self) -> bytes:
        """One document."""
        from pgdyno.report.documents.explanation import render_explanation_json  # noqa: PLC0415 - what is shown is loaded

        return render_explanation_json(self.report)

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.explanation import build_explanation  # noqa: PLC0415 - what is shown is loaded

        return print_document(
            build_explanation(self.report, change=self.change), recorded=name_recorded_program(self.report.record)
        )


class ConfirmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says of an experiment."""

    minutes: float | None
    """The longest that it may take; None: by plan."""
    duration: str | None
    """Of one trial, such as `5s`; None: by the record's."""


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A load, what is taken to limit it, and the experiment that would tell."""

    workload: WorkloadAnalysis
    resource: str
    variant: Variant | None
    intervention: Intervention
    least_ratio: float
    """By how much TPS changes at the least, if it is that."""


class _Experiment(msgspec.Struct, frozen=True):
    """What is going to be run about a record, and where."""

    store: RecordStore
    record: StudyRecord
    subject: _Subject
    study: Study
    place: Workspace

    @property
    def record_there(self) -> StudyRecord:
        """The record as if all of it lay where the explained load ran: the experiment has one place."""
        variant = self.subject.variant
        there = self.record.at(() if variant is None else (variant.name,))
        return msgspec.structs.replace(there, places=())

    def ask_and_link(self, planned: PlannedStudy, ui: Ui) -> None:
        """Ask whether to run it, and note in the record that it is about where it lies."""
        _ask(self.study, self.subject, predicted_s=planned.predicted_s, ui=ui)
        _link(self.store, self.subject, self.study, out=self.place.out or Path())


def explain(store: RecordStore, *, disk: Path | None = None) -> Explanation:
    """Explain a record; nothing is measured or written.

    Args:
        store: Of the record.
        disk: Card of another disk, on which its loads are imagined.

    Raises:
        SpecError: The record has no trial that ended, or the card cannot be read.
    """
    report = compose_report(store).report
    if disk is None:
        return Explanation(report=report)
    wal = None if report.record.wal_disk is None else DiskLimits()
    limits, change = msgspec.structs.replace(find_limits(read_card(disk)), wal=wal), f"the disk of {disk}"
    capacities = tuple(
        msgspec.structs.replace(one, projections=(*one.projections, project_disk(one, limits, change)))
        for one in report.analysis.capacities
    )
    analysis = msgspec.structs.replace(report.analysis, capacities=capacities)
    return Explanation(report=msgspec.structs.replace(report, analysis=analysis), change=change)


def confirm(
    store: RecordStore, *, workload: str | None, wishes: ConfirmOptions, place: Workspace, ui: Ui
) -> Explanation:
    """Run the experiment that would show what limits a load, write both records' reports, and explain again.

    Args:
        store: Of the record to explain.
        workload: Which load; None: the first of which an experiment would tell.
        wishes: What it may take.
        place: Where it works.
        ui: Is told, and asked before it runs.

    Raises:
        SpecError: No experiment would tell, or there is no such load.
        HostError: The record was made elsewhere, or with another PostgreSQL.
        InterruptedStudyError: The user does not want it.
    """
    if (far := read_far(store.path)) is not None:
        raise HostError(
            f"the record was made on {far.ssh}, and its experiments belong there",
            hint=f"`pgdyno compare --server-host {far.ssh}` compares there what the finding names",
        )
    report = compose_report(store).report
    subject = _choose(report, workload)
    study = _compose(store, subject, wishes)
    out = place.out or choose_record("confirm", folder=store.path.parent)
    place = msgspec.structs.replace(place.on_disk_of(report.record), out=out)
    check_new(place)
    run = _run_on_own if report.record.given is None else _run_on_given
    beside = run(_Experiment(store, report.record, subject, study, place), LoggedUi(ui))
    report_step(beside, ui)
    return Explanation(report=write_reports(store).report)


def _run_on_own(asked: _Experiment, ui: Ui) -> RecordStore:
    with ready_machine(asked.study, asked.place, ui) as ready:
        check_same(asked.record_there, ready.host, ready.preflight, ready.installation)
        planned = plan_on(ready, asked.study, card=None)
        asked.ask_and_link(planned, ui)
        beside = begin_record(planned, ready, name="confirm", place=asked.place, wants_card=False, ui=ui)
        with beside.locked(), keeping_what_is_finished(beside), dropping_refused(beside, ui), recording(beside):
            run_trials(beside, ready, ui)
    return beside


def _run_on_given(asked: _Experiment, ui: Ui) -> RecordStore:
    dsn, allowed = asked.record.study.server.dsn or "", allowed_again(asked.record)
    clients = most_clients(asked.study)
    with ready_server(dsn, study=asked.study, clients=clients, allowed=allowed, ui=ui) as ready:
        check_same_server(asked.record, ready)
        planned = plan_given(asked.study, ready)
        asked.ask_and_link(planned, ui)
        beside = begin_given_record(planned, ready, allowed=allowed, name="confirm", place=asked.place, ui=ui)
        with beside.locked(), keeping_what_is_finished(beside), dropping_refused(beside, ui), recording(beside):
            run_given_trials(beside, ready, ui)
    return beside


def _choose(report: ReportInput, named: str | None) -> _Subject:
    record, analysis = report.record, report.analysis
    gains = {one.workload: one.gain_ratio for one in report.explanations if one.rule == LIMITS}
    found = [one for one in analysis.workloads if named in {None, one.name, one.load.name}]
    if not found:
        names = ", ".join(one.name for one in analysis.workloads)
        raise SpecError(f"this record has no workload {named}", hint=f"--workload is one of: {names}")
    for workload in found:
        variants = {variant for trial in workload.trials for variant in trial.record.planned.variants}
        if workload.bottleneck is None or len(variants) > 1:
            continue
        experiment = record.plan.experiment
        variant = experiment.find_variant(variants.pop()) if experiment is not None and variants else None
        trial = workload.representative
        shown = None if trial is None else trial.record.values
        intervention = choose_intervention(
            workload.bottleneck, record, load=workload.load, variant=variant, shown=shown
        )
        if intervention is not None:
            resource = workload.bottleneck.resource.value
            return _Subject(
                workload=workload,
                resource=resource,
                variant=variant,
                intervention=intervention,
                least_ratio=_PART_OF_GAIN * (gains.get(workload.name) or 0.0),
            )
    raise SpecError(
        "no experiment would tell what limits this load"
        if len(found) == 1
        else "no experiment would tell what limits these loads",
        detail="nothing is taken to limit it, or nothing that can be varied here would show it",
        hint="`pgdyno explain` says what could not be judged, and why",
    )


def _compose(store: RecordStore, subject: _Subject, wishes: ConfirmOptions) -> Study:
    """Compose the experiment: the load as it was, and one change."""
    study, variant, was = read_study(store.path / STUDY_FILE), subject.variant, subject.workload.load
    asked = next(one for one in study.workload if one.name == was.name)
    load = msgspec.structs.replace(
        asked, clients=was.clients, threads=was.threads, mode=was.mode, endpoint=was.endpoint
    )
    if variant is not None:
        study = msgspec.structs.replace(study, server=variant.server)
        data = msgspec.structs.replace(study.data, wal_home=place_of(study.data, variant).wal_home)
        data = with_choices(data, variant.initdb)
        study = msgspec.structs.replace(study, data=msgspec.structs.replace(data, scale=variant.scale or data.scale))
    # Sessions ask for what it varies.
    study = msgspec.structs.replace(study, server=msgspec.structs.replace(study.server, apply=None))
    variants = tuple(_make_variant(levels, variant) for levels in subject.intervention.variants)
    return msgspec.structs.replace(
        study,
        question=f"Does {subject.resource} limit {subject.workload.name}?",
        workload=(load,),
        variant=variants,
        sweep=(),
        search=None,
        scaling=None,
        trials=_shorten(study.trials, subject, wishes),
        experiment=ExperimentSpec(minutes=wishes.minutes, detect=_DETECT),
    )


def _make_variant(levels: Mapping[str, SettingValue], variant: Variant | None) -> VariantSpec:
    made = make_variant(levels)
    if variant is None or not (variant.sysctl or variant.home or variant.cache):
        return made
    own = {"sysctl": dict(variant.sysctl), "home": variant.home, "cache": variant.cache}
    return msgspec.structs.replace(made, **own, name=made.title)


def _shorten(trials: TrialsSpec, subject: _Subject, wishes: ConfirmOptions) -> TrialsSpec:
    if wishes.duration is not None:
        try:
            trials = msgspec.structs.replace(trials, duration=wishes.duration)
        except ValueError as exc:
            raise SpecError(f"--duration {wishes.duration}: {exc}", hint="for example --duration 5s") from exc
    elif subject.intervention.varied != "max_wal_size":
        trials = msgspec.structs.replace(trials, duration=f"{min(trials.duration_s, _MOST_TRIAL_S):.0f}s")
    return msgspec.structs.replace(trials, warm_up=f"{min(trials.warm_up_s, _MOST_WARM_UP_S):.0f}s")


def _ask(study: Study, subject: _Subject, *, predicted_s: float, ui: Ui) -> None:
    """Say what is going to be tried, and ask before it runs."""
    asked, intervention = study.variant, subject.intervention
    ui.say(
        f"{subject.workload.name}: experiment: does {subject.resource} limit it? {asked[1].title} against {asked[0].title}. {intervention.why}"
    )
    if intervention.is_what_if:
        ui.say(f"{asked[1].title} gives up durability: a what-if on data of pgdyno's own, and no advice")
    if not ui.confirm(f"run it, for at most {max(1.0, predicted_s / 60.0):.0f} min?", default=True):
        raise InterruptedStudyError("not started")


def _link(store: RecordStore, subject: _Subject, study: Study, *, out: Path) -> None:
    """Note in a record where the experiment about it lies."""
    asked, intervention = study.variant, subject.intervention
    add_confirmation(
        store,
        Confirmation(
            record=os.path.relpath(out, store.path),
            workload=subject.workload.name,
            resource=subject.resource,
            reference=asked[0].title,
            changed=asked[1].title,
            expects=intervention.expects.value,
            is_what_if=intervention.is_what_if,
            is_specific=intervention.is_specific,
            least_ratio=subject.least_ratio,
        ),
    )
