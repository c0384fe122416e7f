"""Compose the experiment about a record: it varies one thing against the load as it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.conduct.study import check_new
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import InterruptedStudyError, SpecError
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.intervention import Intervention, choose_intervention
from pgdyno.flow.report import compose_report
from pgdyno.plan.experiment import Variant
from pgdyno.plan.pin import place_scripts
from pgdyno.plan.places import place_of
from pgdyno.record.confirmation import Confirmation, add_confirmation
from pgdyno.record.far import read_far
from pgdyno.record.new_record import choose_record
from pgdyno.record.store import STUDY_FILE, RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.run.host.clock import local_now
from pgdyno.spec.initdb import with_choices
from pgdyno.spec.read import read_study
from pgdyno.spec.study import Study, TrialsSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import ExperimentSpec, VariantSpec, make_variant

CONFIRM = "confirm"
# Differences that an experiment on a bottleneck is about are large, and what is smaller than this is none of one.
_DETECT = "5%"
# A longer trial does not repeat itself any better, unless checkpoints are what it is about.
_MOST_TRIAL_S, _MOST_WARM_UP_S = 10.0, 3.0
# Of the gain that the share of time allows: the next limit, which nobody knows, takes the rest.
_PART_OF_GAIN = 0.5


class ConfirmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says of an experiment."""

    minutes: float | None
    """The longest that it may take; None: by plan."""
    duration: str | None
    """Of one trial, such as `5s`; None: by the record's."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A load, what is taken to limit it, and the experiment that would tell."""

    workload: WorkloadAnalysis
    resource: str
    variant: Variant | None
    intervention: Intervention
    least_ratio: float
    """By how much TPS changes at the least, if it is that."""


class Experiment(msgspec.Struct, frozen=True):
    """What is going to be run about a record, and where."""

    store: RecordStore
    record: StudyRecord
    subject: Subject
    study: Study
    place: Workspace
    out: Path

    @property
    def record_there(self) -> StudyRecord:
        """The record as if all of it lay and ran where the explained load did: the experiment has one place, and one PostgreSQL."""
        variant = self.subject.variant
        there = self.record.at(() if variant is None else (variant.name,))
        server = there.server if variant is None else there.other_servers.get(variant.name, there.server)
        return msgspec.structs.replace(there, places=(), server=server)

    def ask(self, *, predicted_s: float, ui: Ui) -> None:
        """Say what is going to be tried, and ask before it runs.

        Raises:
            InterruptedStudyError: The user does not want it.
        """
        asked, intervention = self.study.variant, self.subject.intervention
        ui.say(
            f"{self.subject.workload.name}: experiment: does {self.subject.resource} limit it? {asked[1].title} against {asked[0].title}. {intervention.why}"
        )
        if intervention.is_what_if:
            ui.say(f"{asked[1].title} gives up durability: a what-if on data of pgdyno's own, and no advice")
        if not ui.confirm(f"run it, for at most {max(1.0, predicted_s / 60.0):.0f} min?", default=True):
            raise InterruptedStudyError("not started")

    def link(self) -> None:
        """Note in the explained record where the record of the experiment lies."""
        asked, intervention = self.study.variant, self.subject.intervention
        add_confirmation(
            self.store,
            Confirmation(
                record=os.path.relpath(self.out, self.store.path),
                workload=self.subject.workload.name,
                resource=self.subject.resource,
                reference=asked[0].title,
                changed=asked[1].title,
                expects=intervention.expects.value,
                is_what_if=intervention.is_what_if,
                is_specific=intervention.is_specific,
                least_ratio=self.subject.least_ratio,
            ),
        )


def compose_experiment(
    store: RecordStore, *, workload: str | None, wishes: ConfirmOptions, place: Workspace, name: str = CONFIRM
) -> Experiment:
    """Compose the experiment that would show what limits a record's load, with a record beside it.

    Args:
        store: Of the record to explain.
        workload: Which load; None: the first of which an experiment would tell.
        wishes: What it may take.
        place: Where it works.
        name: Of its record, where the user names none.

    Raises:
        SpecError: No experiment would tell, or there is no such load, or the folder for its record holds one.
    """
    report = compose_report(store).report
    subject = _choose(report, workload)
    study = _compose(store, subject, wishes)
    out = place.out or choose_record(name, at=local_now(), folder=store.path.parent)
    place = msgspec.structs.replace(place.on_disk_of(report.record), out=out)
    check_new(place)
    return Experiment(store, report.record, subject, study, place, out)


def _choose(report: ReportInput, named: str | None) -> Subject:
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
            return Subject(
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


def _compose(store: RecordStore, subject: Subject, wishes: ConfirmOptions) -> Study:
    """Compose the experiment: the load as it was, and one change."""
    # Programs that the study names are of the machine where the experiment runs.
    study = read_study(store.path / STUDY_FILE, is_here=read_far(store.path) is None, is_of_record=True)
    variant, was = subject.variant, subject.workload.load
    asked = next(one for one in study.workload if one.name == was.name)
    load = msgspec.structs.replace(
        asked,
        scripts=place_scripts(was.scripts, store.locate_scripts(store.read_record().plan)),
        clients=was.clients,
        threads=was.threads,
        mode=was.mode,
        endpoint=was.endpoint,
    )
    if variant is not None:
        study = msgspec.structs.replace(study, server=variant.server)
        data = msgspec.structs.replace(study.data, wal_home=place_of(study.data, variant).wal_home)
        data = with_choices(data, variant.initdb)
        study = msgspec.structs.replace(study, data=msgspec.structs.replace(data, scale=variant.scale or data.scale))
    # Sessions ask for what it varies.
    study = msgspec.structs.replace(study, server=msgspec.structs.replace(study.server, apply=None))
    variants = tuple(_make_variant(levels, variant, was.load_hosts) for levels in subject.intervention.variants)
    return msgspec.structs.replace(
        study,
        question=f"Does {subject.resource} limit {subject.workload.name}?",
        workload=(load,),
        variant=variants,
        sweep=(),
        search=None,
        scaling=None,
        trials=_shorten(study.trials, subject, wishes),
        experiment=_limit_minutes(wishes.minutes),
    )


def _make_variant(levels: Mapping[str, SettingValue], variant: Variant | None, load_hosts: int | None) -> VariantSpec:
    made = make_variant(levels)
    own: dict[str, Any] = {"load_hosts": made.load_hosts or load_hosts}
    if variant is not None:
        own |= {"sysctl": dict(variant.sysctl), "home": variant.home, "cache": variant.cache}
    return msgspec.structs.replace(made, **own, name=made.title) if any(own.values()) else made


def _limit_minutes(minutes: float | None) -> ExperimentSpec:
    try:
        return ExperimentSpec(minutes=minutes, detect=_DETECT)
    except ValueError as exc:
        raise SpecError(f"--{exc}", hint="for example --minutes 5") from exc


def _shorten(trials: TrialsSpec, subject: Subject, wishes: ConfirmOptions) -> TrialsSpec:
    if wishes.duration is not None:
        try:
            trials = msgspec.structs.replace(trials, duration=wishes.duration)
        except ValueError as exc:
            raise SpecError(f"--duration {wishes.duration}: {exc}", hint="for example --duration 5s") from exc
    elif subject.intervention.varied != "max_wal_size":
        trials = msgspec.structs.replace(trials, duration=f"{min(trials.duration_s, _MOST_TRIAL_S):.0f}s")
    return msgspec.structs.replace(trials, warm_up=f"{min(trials.warm_up_s, _MOST_WARM_UP_S):.0f}s")
