"""A study from question to report: what `bench`, `run` and `resume` share."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pgdyno import __version__
from pgdyno.analyse.disk.demand import find_limits
from pgdyno.conduct.client_sweep import run_scaling
from pgdyno.conduct.experiment import run_experiment
from pgdyno.conduct.finished import are_own_trials_finished, is_finished
from pgdyno.conduct.own_disk import OwnDisk, measure_own_disk, own_disk_step, plan_own_disk
from pgdyno.conduct.progress import note_end, read_progress
from pgdyno.conduct.search import run_search
from pgdyno.conduct.steps import run_steps
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace, machine_of
from pgdyno.errors import HostError, InterruptedStudyError, SpecError
from pgdyno.explain.finding import Severity
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.flow.check import look_at_planned
from pgdyno.flow.report import StudyReport, keeping_what_is_finished, write_reports
from pgdyno.flow.restore import describe_undo
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.identical import find_identical
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import CHECK_S, REPORT_S, Machine, Plan, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.store import HTML_FILE, RecordStore, find_records, open_record
from pgdyno.record.tuned import Tuned
from pgdyno.record.types import FORMAT_VERSION, HostFacts, StudyRecord
from pgdyno.run.change.kernel import restore_left_overs
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.installation import Installation, find_installation
from pgdyno.run.cluster.script_check import SCRIPT_CHECK_S, check_scripts, has_script_files
from pgdyno.run.cluster.server import check_port, looking_on
from pgdyno.run.cluster.template import find_loaded_scales
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.preflight import PreflightSubject, read_preflight
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.program import program_name
from pgdyno.spec.study import Study
from pgdyno.units import format_bytes, format_cpus

# Past this, a person is asked first.
_ASK_ABOVE_S = 3600.0
_MEMORY_TOLERANCE_RATIO = 0.01


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was looked at, and is ours for as long as a study runs."""

    home: Home
    installation: Installation
    host: HostFacts
    preflight: PreflightFacts
    machine: Machine


Refine = Callable[[Study, Ready], tuple[Study, Tuned | None]]
"""Makes of a study what is to be run on a machine, and gives the derived set that it proves."""


def run_study(
    study: Study,
    *,
    name: str,
    place: Workspace,
    ui: Ui,
    load_budget_s: float = 20.0,
    refine: Refine | None = None,
    measures_disk: bool = False,
) -> StudyReport:
    """Plan a study, run it, and write its report.

    Args:
        study: What was asked.
        name: Of its record.
        place: Where it works.
        ui: Is told.
        load_budget_s: How long loading may take when the scale is chosen.
        refine: Completes the study by what the machine is; asked before the disk is measured, to hear at once of what
            cannot be, and again by what was measured.
        measures_disk: Whether the record gets a card of the data's disk.
    """
    if place.out is not None:
        RecordStore(place.out).check_new()
    with _bench_ready(study, place, ui) as ready:
        home, installation = ready.home, ready.installation
        disk, tuned = plan_own_disk(home, installation) if measures_disk else None, None
        if refine is not None:
            study, tuned, disk = _refine(study, ready, disk, refine, ui)
        machine = _with_card(ready.machine, disk)
        plan = plan_study(study, machine, load_budget_s=load_budget_s)
        scaling = plan_scaling(study, plan, machine)
        store = RecordStore(place.out or Path("pgdyno-records") / f"{local_now():%Y%m%d-%H%M%S}-{name}")
        predicted_s = plan.predicted_s + (0.0 if scaling is None else scaling.predicted_s)
        ui.show_plan(plan, record_dir=str(store.path), remaining_s=predicted_s, scaling=scaling)
        if plan.experiment is not None:
            for same in find_identical(plan.experiment, version_major=installation.facts.major):
                why = f" ({same.why})" if same.why else ""
                names = f"{', '.join(same.names[:-1])} and {same.names[-1]}"
                ui.say(f"{names} do the same{why}: what they differ by is noise, as in an A/A test")
        question = f"run for {predicted_s / 3600:.1f} hours?"
        if predicted_s > _ASK_ABOVE_S and not ui.confirm(question, default=True):
            raise InterruptedStudyError("not started")
        _check_scripts(plan, study, home=home, installation=installation, ui=ui)
        record = StudyRecord(
            format_version=FORMAT_VERSION,
            name=name,
            started_at=local_now().isoformat(timespec="seconds"),
            command=(program_name(), *sys.argv[1:]),
            tool_versions={"pgdyno": __version__, "python": platform.python_version()},
            study=study,
            plan=plan,
            host=ready.host,
            server=installation.facts,
            dataset=None,
            preflight=ready.preflight,
            tuned=tuned,
            wants_card=measures_disk,
            is_ended=False,
        )
        store.create(record, study_toml=format_pinned(study, plan, scripts=store.name_scripts(plan)))
        with store.locked(), keeping_what_is_finished(store):
            if disk is not None:
                own_disk_step(disk, host=study.host, store=store, home=home, ui=ui)
            _run(store, record, ready, ui=ui)
    return _report(store, ui)


def resume_study(store: RecordStore, *, place: Workspace, ui: Ui) -> StudyReport:
    """Run the trials of a record that are not finished, and write its report."""
    record = store.read_record()
    if is_finished(store):
        ui.say("nothing is left to measure: only the report is written again")
        if record.is_ended is False:
            with store.locked():
                note_end(store, is_ended=True)
        return _report(store, ui)
    with _bench_ready(record.study, place.on_disk_of(record), ui) as ready:
        check_same(record, ready.host, ready.installation)
        scaling = plan_scaling(record.study, record.plan, ready.machine)
        remaining_s = _remaining_s(record.plan, store)
        remaining_s += 0.0 if scaling is None else _remaining_s(scaling, store.scaling)
        ui.show_plan(record.plan, record_dir=str(store.path), remaining_s=remaining_s, scaling=scaling)
        with store.locked(), keeping_what_is_finished(store):
            note_end(store, is_ended=False)
            record = store.read_record()
            if record.wants_card and not store.card_path.exists():
                # It ended before its disk was measured.
                disk = plan_own_disk(ready.home, ready.installation)
                own_disk_step(disk, host=record.study.host, store=store, home=ready.home, ui=ui)
            _run(store, record, ready, ui=ui)
    return _report(store, ui)


def find_record(named: Path | None, records: Path) -> RecordStore:
    """The record a user named, or the newest of a folder.

    Raises:
        SpecError: There is none.
    """
    if named is not None:
        return open_record(named)
    found = find_records(records)
    if not found:
        raise SpecError(f"there are no records in {records}", hint="`pgdyno bench --quick` makes one")
    return max(found, key=lambda store: store.read_record().started_at)


def find_record_to_read(named: Path | None, records: Path, *, ui: Ui) -> RecordStore:
    """The same for who looks at it, and hears whether it is still to grow.

    Raises:
        SpecError: There is none.
    """
    store = find_record(named, records)
    state = read_progress(store).describe(store.path)
    if state:
        ui.say(f"{store.path} is {state}")
    return store


@contextmanager
def _bench_ready(study: Study, place: Workspace, ui: Ui) -> Iterator[Ready]:
    ui.begin_step("check", predicted_s=CHECK_S)
    if study.server.port is not None:
        check_port(study.server.port)
    user = find_server_user(place.run_as)
    with open_home(place.home, user) as home:
        for left_over in home.left_overs:
            ui.say(f"ended what an earlier run had left behind: {left_over}")
        for undo in restore_left_overs():
            ui.say(f"a killed pgdyno had left {undo.change.what} changed: {describe_undo(undo)}")
        server = reference_server(study)
        installation = find_installation(server, user=user, software_dir=home.software)
        # What it refuses, it says itself when it is started, and of which variant.
        look, _ = look_at_planned(server, installation.facts, user=user)
        host, preflight = read_preflight(
            PreflightSubject(
                data_dir=home.root,
                wal_dir=home.root,
                home=home.root,
                bindir=installation.bindir,
                program_user=user,
                server=look,
            )
        )
        cpus = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)}"
        disk = f"{host.data_disk.filesystem} on {host.data_disk.device}"
        ui.end_step(f"PostgreSQL {installation.facts.version}, {cpus}, data on {disk}")
        for finding in find_obstacles(host, preflight):
            if finding.severity is not Severity.NOTE:
                ui.show_finding(finding)
        if study.server.port is not None:
            ui.say(f"while a trial runs, look on with: {looking_on(home, study.server.port)}")
        scales = find_loaded_scales(home, installation, study.data)
        machine = machine_of(host, version_major=installation.facts.major, scales=scales)
        yield Ready(home=home, installation=installation, host=host, preflight=preflight, machine=machine)


def _refine(
    study: Study, ready: Ready, disk: OwnDisk | None, refine: Refine, ui: Ui
) -> tuple[Study, Tuned | None, OwnDisk | None]:
    """The study completed by what the machine is and its disk can do. The disk's time is a part of what it may take."""
    machine = _with_card(ready.machine, disk)
    completed, tuned = refine(study, msgspec.structs.replace(ready, machine=machine))
    if disk is not None and disk.expected_s:
        disk = measure_own_disk(disk, home=ready.home, ui=ui)
        machine = msgspec.structs.replace(_with_card(machine, disk), disk_card_s=machine.disk_card_s)
        completed, tuned = refine(study, msgspec.structs.replace(ready, machine=machine))
    return completed, tuned, disk


def _with_card(machine: Machine, disk: OwnDisk | None) -> Machine:
    if disk is None:
        return machine
    written = None if disk.kept is None else find_limits(disk.kept).write_bytes_per_s
    return msgspec.structs.replace(machine, disk_card_s=disk.expected_s, write_bytes_per_s=written)


def _check_scripts(plan: Plan, study: Study, *, home: Home, installation: Installation, ui: Ui) -> None:
    if not has_script_files(plan.workloads):
        return
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    remarks = check_scripts(
        installation=installation,
        home=home,
        data=study.data,
        workloads=plan.workloads,
        settings=study.server.settings,
        on_activity=ui.show_activity,
    )
    ui.end_step("they run" if not remarks else "see the notes")
    for remark in remarks:
        ui.say(remark)


def _run(store: RecordStore, record: StudyRecord, ready: Ready, *, ui: Ui) -> None:
    home, installation = ready.home, ready.installation
    experiment, search = record.plan.experiment, record.plan.search
    if are_own_trials_finished(store):
        pass
    elif experiment is not None:
        run_experiment(store, record, experiment, home=home, ui=ui)
    elif search is not None:
        run_search(store, record, search, home=home, installation=installation, ui=ui)
    else:
        run_steps(store, record, home=home, installation=installation, ui=ui)
    if record.study.scaling is not None:
        run_scaling(store, machine=ready.machine, home=home, ui=ui)
    note_end(store, is_ended=True)


def _report(store: RecordStore, ui: Ui) -> StudyReport:
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


def check_same(record: StudyRecord, host: HostFacts, installation: Installation) -> None:
    """Make sure that trials of now may stand beside those of a record.

    Raises:
        HostError: The machine, its disk or PostgreSQL are others.
    """
    if installation.facts.version_num != record.server.version_num:
        raise HostError(
            f"the record was made with PostgreSQL {record.server.version}, here is {installation.facts.version}",
            hint="install that version again, or begin a new study",
        )
    then, now = _identity(record.host), _identity(host)
    memory_ratio = host.memory_bytes / record.host.memory_bytes
    # The kernel keeps a little more or less of it for itself at each boot.
    if then != now or abs(memory_ratio - 1.0) > _MEMORY_TOLERANCE_RATIO:
        raise HostError(
            "the record was made on another machine, disk or kernel",
            detail=f"then {then}, {record.host.memory_bytes} bytes\nnow  {now}, {host.memory_bytes} bytes",
            hint="trials of two machines do not belong in one estimate: begin a new study",
        )


def _identity(host: HostFacts) -> tuple[str, int, str, str | None, str]:
    disk = host.data_disk
    return host.cpu_model, host.cpu_count, host.kernel, disk.block_device, disk.filesystem


def _remaining_s(plan: Plan, store: RecordStore) -> float:
    """Of the steps that are left of a record, or of one that is not begun."""
    if store.exists and are_own_trials_finished(store):
        return 0.0
    finished = store.finished_numbers()
    return sum(step.predicted_s for step in plan.steps if step.trial is None or step.trial.number not in finished)
