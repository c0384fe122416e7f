"""The steps of a study that all recipes share: plan, begin or go on with its record, run its trials, and sweep."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pgdyno import __version__
from pgdyno.conduct.cards.study import StudyCard, has_all_cards, plan_study_card, study_card_step
from pgdyno.conduct.client_sweep import run_scaling
from pgdyno.conduct.experiment import run_experiment
from pgdyno.conduct.finished import are_own_trials_finished
from pgdyno.conduct.machine import ReadyMachine
from pgdyno.conduct.progress import note_end
from pgdyno.conduct.search import run_search
from pgdyno.conduct.steps import end_script_check, prepare_stage, run_stage
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import InterruptedStudyError, SpecError
from pgdyno.plan.identical import find_identical
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Machine, Plan, PlannedSweep, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.plan.standbys import SYNCHRONOUS_NAMES
from pgdyno.record.new_record import choose_record
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import Tuned
from pgdyno.record.types import OWN_SERVER_FORMAT, ServerFacts, StudyRecord, choose_format
from pgdyno.run.cluster.script_check import check_scripts
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.log import LOG, logging_into
from pgdyno.run.host.program import typed_command
from pgdyno.run.load.little_run import SCRIPT_CHECK_S, has_script_files
from pgdyno.spec.study import Study

# A plan that takes longer is confirmed by the user before it runs.
_ASK_ABOVE_S = 3600.0


class PlannedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """A study with the steps that it takes on a machine."""

    study: Study
    plan: Plan
    scaling: Plan | None
    """The sweep over clients that follows; None where none follows."""
    tuned: Tuned | None = None
    """The derived settings that the study tries; None where it derives none."""

    @property
    def whole_plan(self) -> Plan:
        """The plan, with the size of the sweep that follows."""
        if self.scaling is None:
            return self.plan
        sweep = PlannedSweep(predicted_s=self.scaling.predicted_s, trial_count=len(self.scaling.trials))
        return msgspec.structs.replace(self.plan, sweep=sweep)

    @property
    def predicted_s(self) -> float:
        """How long all steps take, with those of the sweep that follows."""
        return self.plan.predicted_s + (0.0 if self.scaling is None else self.scaling.predicted_s)


def plan_on(
    ready: ReadyMachine,
    study: Study,
    *,
    card: StudyCard | None,
    tuned: Tuned | None = None,
    load_budget_s: float = 20.0,
) -> PlannedStudy:
    """Plan a study for a machine.

    Args:
        ready: The machine.
        study: What to run.
        card: Of the machine's disk; None where the study needs none.
        tuned: The derived settings that the study tries.
        load_budget_s: How long loading may take when the scale is chosen.

    Raises:
        SpecError: The study cannot be run as it stands.
        HostError: The data do not fit on the disk.
    """
    machine = ready.with_card(card).machine
    plan = plan_study(study, machine, load_budget_s=load_budget_s)
    return PlannedStudy(study=study, plan=plan, scaling=plan_scaling(study, plan, machine), tuned=tuned)


def check_new(place: Workspace) -> None:
    """Make sure that the record's folder, where the user named one, holds no record.

    Raises:
        SpecError: It holds one.
    """
    if place.out is not None:
        RecordStore(place.out).check_new()


def begin_record(
    planned: PlannedStudy, ready: ReadyMachine, *, name: str, place: Workspace, wants_card: bool, ui: Ui
) -> RecordStore:
    """Show the plan, ask before a long one, try the scripts, and create the record.

    Args:
        planned: What is going to run.
        ready: The machine.
        name: Of the study.
        place: Where the record goes.
        wants_card: Whether the record gets a card of the data's disk.
        ui: Shows the plan and asks.

    Raises:
        InterruptedStudyError: The user does not want it.
        SpecError: A script fails.
    """
    store = announce(planned, version_major=ready.installation.facts.major, name=name, place=place, ui=ui)
    _check_scripts(planned, ready, ui)
    record = draft_record(planned, name=name, server=ready.installation.facts)
    create_record(
        store,
        msgspec.structs.replace(
            record,
            host=ready.host,
            preflight=ready.preflight,
            places=ready.places,
            other_servers=ready.other_servers,
            wants_card=wants_card,
            load_host=None if ready.load is None else ready.load.ready.least,
            load_hosts=() if ready.load is None else ready.load.ready.hosts,
        ),
    )
    return store


def announce(planned: PlannedStudy, *, version_major: int, name: str, place: Workspace, ui: Ui) -> RecordStore:
    """Show the plan and where its record goes, and ask before a long one.

    Raises:
        InterruptedStudyError: The user does not want it.
    """
    store = RecordStore(place.out or choose_record(name, at=local_now()))
    _show_plan(planned, version_major, store, ui)
    question = f"run for {planned.predicted_s / 3600:.1f} hours?"
    if planned.predicted_s > _ASK_ABOVE_S and not ui.confirm(question, default=True):
        raise InterruptedStudyError("not started")
    return store


def draft_record(planned: PlannedStudy, *, name: str, server: ServerFacts) -> StudyRecord:
    """Return the record of a planned study, without what is known of its machine."""
    return StudyRecord(
        format_version=choose_format(planned.study, planned.plan, OWN_SERVER_FORMAT),
        name=name,
        started_at=local_now().isoformat(timespec="seconds"),
        command=typed_command(),
        tool_versions={"pgdyno": __version__, "python": platform.python_version()},
        study=planned.study,
        plan=planned.whole_plan,
        host=None,
        server=server,
        dataset=None,
        tuned=planned.tuned,
        is_ended=False,
    )


def create_record(store: RecordStore, record: StudyRecord) -> None:
    """Create a record, with its study as a file."""
    pinned = format_pinned(record.study, record.plan, scripts=store.name_copies(record))
    store.create(record, study_toml=pinned)


def _plan_following(record: StudyRecord, machine: Machine, ui: Ui) -> Plan | None:
    try:
        return plan_scaling(record.study, record.plan, machine)
    except SpecError as exc:
        # Earlier versions planned the sweep for one variant only: the comparison goes on, and one that can run it may win.
        ui.say(f"the sweep over clients cannot be planned: {exc.fact}")
        return None


def reopen_record(store: RecordStore, machine: Machine, ui: Ui) -> None:
    """Show what is left of a record's plan."""
    record = store.read_record()
    scaling = store.scaling.read_record().plan if store.scaling.exists else _plan_following(record, machine, ui)
    remaining_s = _remaining_s(record.plan, store)
    remaining_s += 0.0 if scaling is None else _remaining_s(scaling, store.scaling)
    ui.show_plan(record.plan, record_dir=str(store.path), remaining_s=remaining_s, scaling=scaling)
    for number in store.interrupted_numbers():
        ui.say(
            f"trial {number} was interrupted and does not count: its files are kept, and what is still needed follows"
        )


@contextmanager
def recording(store: RecordStore) -> Iterator[None]:
    """Log into the record while a study runs, and note that it runs and, at the end of the block, that it has ended.

    Trials that were interrupted before are set aside: one that is not run again would seem to run all the while.
    """
    with logging_into(store.path):
        for part in (store, store.scaling):
            for number in part.interrupted_numbers():
                part.set_aside(number)
        if store.read_record().is_ended is not False:
            note_end(store, is_ended=False)
        try:
            yield
        except KeyboardInterrupt:
            LOG.warning("stopped by the user")
            raise
        except BaseException:
            LOG.exception("the study fails")
            raise
        note_end(store, is_ended=True)
        LOG.info("the study ends")


@contextmanager
def dropping_refused(store: RecordStore, ui: Ui) -> Iterator[None]:
    """Remove a new record if its study is refused before the first trial: resuming it would be refused as well."""
    try:
        yield
    except SpecError:
        if not store.has_trials:
            store.remove()
            ui.say(f"{store.path} is removed: it has no trial")
        raise


def run_missing_card(store: RecordStore, ready: ReadyMachine, ui: Ui) -> None:
    """Measure the disk of a record that wants a card and ended before it had one."""
    record = store.read_record()
    if record.wants_card and not has_all_cards(store, record):
        card = plan_study_card(ready.home, ready.installation, clock=ready.clock)
        study_card_step(card, host=record.study.host, store=store, home=ready.home, ui=ui)


def run_trials(store: RecordStore, ready: ReadyMachine, ui: Ui) -> None:
    """Run the trials of a record that are still wanted: of an experiment, of a search, or all of its plan."""
    record = store.read_record()
    home, installation = ready.home, ready.installation
    search = record.plan.search
    if are_own_trials_finished(store):
        return
    if record.plan.experiment is not None:
        run_experiment(store, tuned=record.tuned, home=home, load=ready.load, ui=ui)
        return
    stage = prepare_stage(store, record, home=home, installation=installation, load=ready.load, ui=ui)
    if search is not None:
        run_search(store, record, search, stage, ui=ui)
    else:
        run_stage(store, record, stage, ui=ui)


def run_sweep(store: RecordStore, ready: ReadyMachine, ui: Ui) -> None:
    """Run the sweep over clients that follows a study, where the study asks for one."""
    if store.read_record().study.scaling is not None:
        run_scaling(store, ready, ui)


def _show_plan(planned: PlannedStudy, version_major: int, store: RecordStore, ui: Ui) -> None:
    plan = planned.plan
    ui.show_plan(plan, record_dir=str(store.path), remaining_s=planned.predicted_s, scaling=planned.scaling)
    if plan.experiment is None:
        return
    for same in find_identical(plan.experiment, version_major=version_major):
        why = f" ({same.why})" if same.why else ""
        names = f"{', '.join(same.names[:-1])} and {same.names[-1]}"
        ui.say(f"{names} do the same{why}: any difference between them is noise, as in an A/A test")


def _check_scripts(planned: PlannedStudy, ready: ReadyMachine, ui: Ui) -> None:
    if not has_script_files(planned.plan.script_loads):
        return
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    # The check has no standbys that commits could wait for.
    settings = {n: value for n, value in planned.study.server.settings.items() if n.lower() != SYNCHRONOUS_NAMES}
    remarks = check_scripts(
        installation=ready.installation,
        home=ready.home,
        data=planned.study.data,
        workloads=planned.plan.script_loads,
        settings=settings,
        access=None if ready.load is None else ready.load.access,
        on_activity=ui.show_activity,
    )
    end_script_check(remarks, ui)


def _remaining_s(plan: Plan, store: RecordStore) -> float:
    """Return the predicted seconds of the steps that are left; of a record that is not begun, of all of them."""
    if store.exists and are_own_trials_finished(store):
        return 0.0
    finished = store.finished_numbers()
    return sum(step.predicted_s for step in plan.steps if step.trial is None or step.trial.number not in finished)
