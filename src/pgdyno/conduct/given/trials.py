"""Try the scripts of a study on a server of the user's, load the data, and run the trials."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import msgspec

from pgdyno.conduct.client_sweep import begin_scaling
from pgdyno.conduct.experiment import run_rounds
from pgdyno.conduct.finished import are_own_trials_finished
from pgdyno.conduct.given.server import ReadyServer
from pgdyno.conduct.given.switch import find_switch, hold_settings
from pgdyno.conduct.runner import refuse_variants
from pgdyno.conduct.search import run_search
from pgdyno.conduct.steps import end_script_check, load_step, run_stage
from pgdyno.conduct.study import PlannedStudy
from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.plan import Plan
from pgdyno.record.durable import writing
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.run.change.given.target import GivenSwitch
from pgdyno.run.given.script_check import check_prepared, check_scripts_on_data, check_scripts_there
from pgdyno.run.load.little_run import SCRIPT_CHECK_S, has_script_files
from pgdyno.run.postgres import sql
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.units import format_bytes


def check_given_scripts(planned: PlannedStudy, ready: ReadyServer, ui: Ui) -> None:
    """Try script files, and prepared statements behind a pooler of transactions, before anything large is loaded.

    Raises:
        SpecError: A script is wrong, or the pooler loses what its clients prepare.
    """
    if ready.seen.has_pooled_transactions and any(load.mode is QueryMode.PREPARED for load in planned.plan.loads):
        check_prepared(ready.address)
    if planned.study.data.is_own or not has_script_files(planned.plan.script_loads):
        return
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    remarks = check_scripts_there(
        ready.address,
        ready.generator,
        data=planned.study.data,
        workloads=planned.plan.script_loads,
        replicas=ready.under_test.replicas,
        on_activity=ui.show_activity,
    )
    end_script_check(remarks, ui)


def _check_scripts_on_data(
    stage: TrialStage, ready: ReadyServer, *, is_read_only: bool, is_busy_allowed: bool, ui: Ui
) -> None:
    """Try scripts on the user's own data, which no generated data could stand for.

    Raises:
        SpecError: One fails.
    """
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    ready.under_test.reset(ui.show_activity)
    remarks = check_scripts_on_data(
        ready.under_test.load_address,
        ready.generator,
        workloads=stage.plan.script_loads,
        readers=ready.under_test.readers,
        read_only=ready.under_test.address if is_read_only else None,
        is_busy_allowed=is_busy_allowed,
        on_activity=ui.show_activity,
    )
    end_script_check(remarks, ui)


def run_given_trials(store: RecordStore, ready: ReadyServer, ui: Ui) -> None:
    """Load the data, and run the trials of a record that are not finished."""
    if are_own_trials_finished(store):
        return
    # A resumed study tries again what was given up: its reason may be gone.
    record = refuse_variants(store, msgspec.structs.replace(store.read_record(), refused_variants={}), {})
    experiment = record.plan.experiment
    switch = find_switch(record.study, experiment, ready)
    with closing(ready.under_test):
        _try_poolers(record.plan, ready, ui)
        if experiment is not None:
            _try_variants(experiment, switch, ready, ui)
            if experiment.is_side_by_side:
                _lift_timeouts(ready, ui)
        stage = _prepare_stage(store, record, ready, ui)
        database = record.study.data.database
        if record.study.data.is_own and not store.has_trials:
            is_read_only = database is not None and not record.are_writes_allowed
            is_busy = record.is_busy_allowed
            _check_scripts_on_data(stage, ready, is_read_only=is_read_only, is_busy_allowed=is_busy, ui=ui)
        if experiment is not None:
            if experiment.is_side_by_side:
                _tell_copies(stage, experiment, ui)
            with nullcontext() if switch is None else hold_settings(switch, ui) as held:
                ready.under_test.switch = held
                run_rounds(store, store.read_record(), experiment, _make_stages(stage, experiment), ui=ui)
        elif record.plan.search is not None:
            run_search(store, record, record.plan.search, stage, ui=ui)
        else:
            run_stage(store, record, stage, ui=ui)


def run_given_sweep(store: RecordStore, ready: ReadyServer, ui: Ui) -> None:
    """Run the sweep over clients that follows a study, or what is left of it, where the study asks for one."""
    record = store.read_record()
    if record.study.scaling is None:
        return
    if not store.scaling.exists:
        begin_scaling(store, machine=ready.machine, facts=ready.facts, ui=ui)
    run_given_trials(store.scaling, ready, ui)


@contextmanager
def telling_kept(store: RecordStore, ready: ReadyServer, ui: Ui) -> Iterator[None]:
    """Say after a `with` block, also one that failed, that the loaded database stays in the server, and what drops it."""
    try:
        yield
    finally:
        record = store.read_record()
        if record.dataset is not None and record.study.data.database is None:
            drop = f"`pgdyno clean --dsn {shlex.quote(record.study.server.dsn or '')}`"
            ui.say(f"the loaded database is kept in {ready.seen.address} for the next study; {drop} drops it")


def _prepare_stage(store: RecordStore, record: StudyRecord, ready: ReadyServer, ui: Ui) -> TrialStage:
    with writing(store.init_dir):
        store.init_dir.mkdir(exist_ok=True)
    # What the record keeps is loaded: also where the user's file has changed since the study began.
    study = msgspec.structs.replace(record.study, data=store.keep_init(record.study.data))
    kept = msgspec.structs.replace(record, study=study)
    dataset = load_step(ready.under_test, kept, scale=record.plan.scale, output_dir=store.init_dir, ui=ui)
    if record.study.data.init is not None and not dataset.relations:
        ui.say(f"{Path(record.study.data.init).name} makes no table: has it what the scripts need?")
    if record.dataset is None:
        store.write_record(msgspec.structs.replace(record, dataset=dataset))
    return TrialStage(
        server=ready.under_test,
        generator=ready.generator if ready.load is None else ready.load.generator,
        load_links={} if ready.load is None else ready.load.links,
        shared_hosts=frozenset() if ready.load is None else ready.load.shared,
        dataset=dataset,
        study=record.study,
        plan=record.plan,
        settings=record.study.server.settings,
        cpu_count=ready.load_host.usable_cpu_count,
        scripts=store.keep_scripts(record.plan),
    )


def _try_variants(experiment: Experiment, switch: GivenSwitch | None, ready: ReadyServer, ui: Ui) -> None:
    ui.begin_step("try the variants", predicted_s=0.1 * len(experiment.variants))
    for variant in experiment.variants:
        try:
            ready.under_test.try_settings(_find_session_settings(variant, switch))
        except SpecError as error:
            error.fact = f"{variant.name}: {error.fact}"
            raise
    ui.end_step("the server takes their settings")


def _try_poolers(plan: Plan, ready: ReadyServer, ui: Ui) -> None:
    """Try the poolers that loads connect to.

    Raises:
        SpecError: One cannot take its load.
    """
    if not plan.poolers:
        return
    ui.begin_step("try the poolers", predicted_s=0.2 * len(plan.poolers))
    through = [plan.find_load(trial) for trial in plan.trials]
    for pooler in plan.poolers:
        modes = {load.mode for load in through if pooler.name in load.endpoints}
        ready.under_test.try_pooler(pooler, keeps_statements=QueryMode.PREPARED in modes)
    ui.end_step("they lead to the server")


def _lift_timeouts(ready: ReadyServer, ui: Ui) -> None:
    if names := ready.under_test.lift_timeouts():
        ui.say(f"the load's sessions ask for no {', '.join(names)}: these would end what a frozen client has begun")


def _tell_copies(stage: TrialStage, experiment: Experiment, ui: Ui) -> None:
    """Say how much room the copies of a live round take in a server, whose disk is not looked at."""
    count = len(experiment.variants) + 1
    with stage.server.connect() as connection:
        buffers = sql.read_setting(connection, "shared_buffers")
    ui.say(
        f"each round has {count} copies of the data in the server at once, {format_bytes(count * stage.dataset.total_bytes)};"
        f" they share its memory, of which shared_buffers are {buffers}"
    )


def _find_session_settings(variant: Variant, switch: GivenSwitch | None) -> dict[str, SettingValue]:
    names = () if switch is None else switch.names
    return {name: value for name, value in variant.server.settings.items() if name.lower() not in names}


def _make_stages(stage: TrialStage, experiment: Experiment) -> dict[str, TrialStage]:
    """Return the stages of the variants, which share the server and its data."""
    return {
        variant.name: msgspec.structs.replace(stage, settings=variant.server.settings)
        for variant in experiment.variants
    }
