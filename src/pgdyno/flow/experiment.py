"""A comparison, run until it knows: try the arms, load, then trials until every question is decided or time is spent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pgdyno.errors import PgdynoError, SpecError, StepFailedError
from pgdyno.flow.referee import Referee, describe_standing
from pgdyno.flow.steering import BlockSteering
from pgdyno.flow.steps import describe_outcome, keeping_what_is_finished, load_step, trial_step
from pgdyno.flow.ui import Ui
from pgdyno.plan.experiment import Arm, Experiment
from pgdyno.plan.plan import PlannedTrial, Step
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import ErrorFact, StudyRecord
from pgdyno.run.arms import TRY_S, ArmServer, try_arms
from pgdyno.run.home import Home
from pgdyno.run.installation import find_installation
from pgdyno.run.sysctl import check_sysctls
from pgdyno.run.trial import TrialStage

# An arm that fails as often is not tried again: it is reported as it is.
_MOST_FAILURES = 2


def run_experiment(store: RecordStore, record: StudyRecord, experiment: Experiment, *, home: Home, ui: Ui) -> None:
    """Run the trials of a comparison that are still of use."""
    scripts = store.keep_scripts(record.plan)
    with keeping_what_is_finished(store):
        servers = {
            arm.name: ArmServer(
                arm=arm, installation=find_installation(arm.server, user=home.user, software_dir=home.software)
            )
            for arm in experiment.arms
        }
        record = _try_arms(store, record, experiment, servers, home=home, ui=ui)
        stages = _prepare_stages(store, record, experiment, servers, home=home, ui=ui)
        stages = {name: msgspec.structs.replace(stage, scripts=scripts) for name, stage in stages.items()}
        referee = Referee(record, experiment)
        referee.take_finished(store)
        runner = _Runner(store=store, record=record, experiment=experiment, stages=stages, referee=referee, ui=ui)
        finished = store.finished_numbers()
        for step in record.plan.steps:
            if step.trial is not None and step.trial.number not in finished and referee.wants(step.trial):
                runner.run(step, step.trial)


class _Runner:
    """Runs one trial after the other and tells the referee."""

    def __init__(
        self,
        *,
        store: RecordStore,
        record: StudyRecord,
        experiment: Experiment,
        stages: Mapping[str, TrialStage],
        referee: Referee,
        ui: Ui,
    ) -> None:
        self._store = store
        self._record = record
        self._experiment = experiment
        self._stages = stages
        self._referee = referee
        self._ui = ui
        self._failures: dict[str, int] = {}

    def run(self, step: Step, trial: PlannedTrial) -> None:
        """Run a trial; one that fails is repeated once, and then its arm is given up or the study ends."""
        arm = trial.arms[0]
        while True:
            steering = None
            if len(trial.arms) > 1:
                steering = BlockSteering(self._experiment, trial, self._referee)
            outcome = trial_step(step, store=self._store, stage=self._stages[arm], ui=self._ui, steering=steering)
            if outcome.error is None:
                break
            self._failures[arm] = self._failures.get(arm, 0) + 1
            if self._failures[arm] < _MOST_FAILURES and isinstance(outcome.error, StepFailedError):
                self._ui.say(f"trial {trial.number} failed and is repeated: {outcome.error.fact}")
                continue
            self._give_up(arm, outcome.error)
            return
        self._referee.take(read_trial_data(self._store.trial_dir(trial.number), outcome.record))
        self._ui.end_step(self._describe(trial) or describe_outcome(outcome))

    def _give_up(self, arm: str, error: PgdynoError) -> None:
        if arm == self._experiment.reference.name:
            raise error
        self._ui.end_step(f"given up: {error.fact}")
        self._referee.give_up(arm)
        self._record = _refuse(self._store, self._record, {arm: _fact_of(error)})

    def _describe(self, trial: PlannedTrial) -> str:
        """How things stand after a block, or after the last trial of a round."""
        comparison = self._referee.compare_workload(trial.workload)
        if len(trial.arms) > 1:
            return describe_standing(comparison)
        later = [t for t in self._record.plan.trials if (t.round, t.workload) == (trial.round, trial.workload)]
        return describe_standing(comparison) if later[-1].number == trial.number else ""


def _try_arms(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, ArmServer],
    *,
    home: Home,
    ui: Ui,
) -> StudyRecord:
    untried = [each for name, each in servers.items() if name not in record.refused_arms]
    for arm in experiment.arms:
        check_sysctls(arm.sysctl)
    ui.begin_step("try the variants", predicted_s=2.0 + TRY_S * len(untried))
    refused = try_arms(home, untried, on_activity=ui.show_activity)
    ui.end_step("all start" if not refused else f"{', '.join(refused)} does not start")
    for name, error in refused.items():
        ui.say(f"{name}: {error.fact}: {error.detail}")
    reference = experiment.reference.name
    if reference in refused:
        error = refused[reference]
        raise SpecError(f"the reference {reference} does not start", detail=error.detail, hint=error.hint)
    record = _refuse(store, record, refused)
    if len(record.refused_arms) == len(experiment.arms) - 1:
        raise SpecError("only the reference starts: there is nothing to compare", detail=_join(record.refused_arms))
    return record


def _refuse(store: RecordStore, record: StudyRecord, errors: Mapping[str, ErrorFact]) -> StudyRecord:
    if not errors:
        return record
    record = msgspec.structs.replace(record, refused_arms={**record.refused_arms, **errors})
    store.write_record(record)
    return record


def _fact_of(error: PgdynoError) -> ErrorFact:
    return ErrorFact(fact=error.fact, detail=error.detail, hint=error.hint)


def _join(errors: Mapping[str, ErrorFact]) -> str:
    return "\n".join(f"{name}: {error.detail or error.fact}" for name, error in errors.items())


def _prepare_stages(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, ArmServer],
    *,
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
        installation = servers[arm.name].installation
        template = load_step(
            store,
            record,
            home=home,
            installation=installation,
            ui=ui,
            scale=arm.scale,
            output_dir=store.init_dir if not stages else store.init_dir / str(len(stages)),
        )
        if not stages and record.dataset is None:
            record = msgspec.structs.replace(record, dataset=template.dataset)
            store.write_record(record)
        stages[arm.name] = TrialStage(
            installation=installation,
            home=home,
            template=template,
            study=record.study,
            plan=record.plan,
            settings=arm.server.settings,
            cpu_count=record.host.usable_cpu_count,
        )
    return stages


def _shares_data(one: Arm, other: Arm) -> bool:
    return one.scale == other.scale and msgspec.structs.replace(one.server, settings={}) == msgspec.structs.replace(
        other.server, settings={}
    )
