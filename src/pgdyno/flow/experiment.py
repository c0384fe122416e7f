"""A comparison, run until it knows: try the arms, load, then trials until every question is decided or time is spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.flow.referee import Referee
from pgdyno.flow.runner import TrialRunner, refuse_arms
from pgdyno.flow.steps import make_stage
from pgdyno.flow.ui import Ui
from pgdyno.plan.experiment import Arm, Experiment, count_starts
from pgdyno.plan.plan import try_arms_s
from pgdyno.record.store import RecordStore
from pgdyno.record.types import ErrorFact, StudyRecord
from pgdyno.run.arms import ArmServer, try_arms
from pgdyno.run.home import Home
from pgdyno.run.installation import find_installation
from pgdyno.run.sysctl import check_sysctls
from pgdyno.run.trial import TrialStage


def run_experiment(store: RecordStore, record: StudyRecord, experiment: Experiment, *, home: Home, ui: Ui) -> None:
    """Run the trials of a comparison that are still of use."""
    scripts = store.keep_scripts(record.plan)
    servers = {
        arm.name: ArmServer(
            arm=arm, installation=find_installation(arm.server, user=home.user, software_dir=home.software)
        )
        for arm in experiment.arms
    }
    record = _try_arms(store, record, experiment, servers, home=home, ui=ui)
    stages = _make_stages(store, record, experiment, servers, scripts=scripts, home=home, ui=ui)
    if record.dataset is None:
        record = msgspec.structs.replace(record, dataset=stages[experiment.reference.name].template.dataset)
        store.write_record(record)
    referee = Referee(record, experiment)
    referee.take_finished(store)
    TrialRunner(store=store, record=record, experiment=experiment, stages=stages, referee=referee, ui=ui).run()


def _try_arms(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, ArmServer],
    *,
    home: Home,
    ui: Ui,
) -> StudyRecord:
    for arm in experiment.arms:
        check_sysctls(arm.sysctl)
    ui.begin_step("try the variants", predicted_s=try_arms_s(count_starts(experiment.arms)))
    refused = try_arms(home, list(servers.values()), on_activity=ui.show_activity)
    ui.end_step("all start" if not refused else f"{len(refused)} of {len(servers)} do not start")
    for name, error in refused.items():
        ui.say(f"{name}: {error.fact}: {error.detail}")
    reference = experiment.reference.name
    if reference in refused:
        error = refused[reference]
        raise SpecError(f"the reference {reference} does not start", detail=error.detail, hint=error.hint)
    if len(refused) == len(experiment.arms) - 1:
        raise SpecError(
            "only the reference starts: there is nothing to compare",
            detail=_join(refused),
            hint="mend what their servers complain of",
        )
    # A resumed study tries again what did not start, or was given up: its reason may be gone.
    return refuse_arms(store, msgspec.structs.replace(record, refused_arms={}), refused)


def _join(errors: Mapping[str, ErrorFact]) -> str:
    return "\n".join(f"{name}: {error.detail or error.fact}" for name, error in errors.items())


def _make_stages(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, ArmServer],
    *,
    scripts: Mapping[str, Path],
    home: Home,
    ui: Ui,
) -> dict[str, TrialStage]:
    """A stage for each arm; those of one PostgreSQL and scale share their data."""
    stages: dict[str, TrialStage] = {}
    for arm in experiment.arms:
        if arm.name in record.refused_arms:
            continue
        other = next((s for n, s in stages.items() if _shares_data(experiment.find_arm(n), arm)), None)
        if other is not None:
            stages[arm.name] = msgspec.structs.replace(other, settings=arm.server.settings)
            continue
        stages[arm.name] = make_stage(
            record,
            scale=arm.scale or record.plan.scale,
            settings=arm.server.settings,
            scripts=scripts,
            output_dir=store.init_dir if not stages else store.init_dir / str(len(stages)),
            home=home,
            installation=servers[arm.name].installation,
            ui=ui,
        )
    return stages


def _shares_data(one: Arm, other: Arm) -> bool:
    return one.scale == other.scale and msgspec.structs.replace(one.server, settings={}) == msgspec.structs.replace(
        other.server, settings={}
    )
