"""Run the steps that every study consists of: load the data, predict and run trials, and repeat a trial that fails.

Also decide whether one more turn of a study fits into the announced time, by how long its turns take on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from pgdyno.analyse.prediction import PredictionBasis, predict_trial
from pgdyno.conduct.block_schedule import BlockSchedule
from pgdyno.conduct.cards.limits import read_limits
from pgdyno.conduct.comparison_line import shorten
from pgdyno.conduct.load.own import OwnLoad
from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, ShortPoolError, StepFailedError
from pgdyno.plan.plan import Plan, PlannedTrial, Step, StepKind
from pgdyno.plan.standbys import with_synchronous_names
from pgdyno.record.durable import writing
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.predictions import write_predictions
from pgdyno.record.running_trial import write_planned
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import Dataset, StudyRecord, TrialStatus
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.template import EMPTY
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres.installation import Installation
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.run.under_test import ServerUnderTest
from pgdyno.spec.initdb import SEGMENTS_OF_MAX_WAL, combine_choices, show_choices
from pgdyno.spec.pooler import PRIMARY
from pgdyno.spec.study import DataSpec, ServerKind
from pgdyno.spec.table import CacheState, SettingValue
from pgdyno.units import format_bytes, round_to_three

TRIES = 2
"""How often a trial that fails is tried."""
_FEW_LINES = 3
_REASON = re.compile(r"(?:ERROR|FATAL|PANIC): +(.*)")


def run_stage(store: RecordStore, record: StudyRecord, stage: TrialStage, *, ui: Ui) -> None:
    """Run the trials of a study that are not finished, one after the other."""
    for step, trial in list_open_trials(store, record):
        outcome = try_trial(step, trial, store=store, stage=stage, ui=ui)
        ui.end_step(describe_outcome(outcome))


def try_trial(step: Step, trial: PlannedTrial, *, store: RecordStore, stage: TrialStage, ui: Ui) -> TrialOutcome:
    """Run a trial, and repeat it once if it fails.

    Raises:
        PgdynoError: It failed again, or repeating is of no use.
    """
    for tries in count(1):
        outcome = trial_step(step, trial, store=store, stage=stage, ui=ui)
        if outcome.error is None:
            break
        if not tell_failure(trial, outcome.error, tries=tries, ui=ui):
            raise outcome.error
    return outcome


def list_open_trials(store: RecordStore, record: StudyRecord) -> list[tuple[Step, PlannedTrial]]:
    """List the planned trials that are not finished, each with its step."""
    finished = store.finished_numbers()
    return [(step, trial) for step in record.plan.steps if (trial := step.trial) and trial.number not in finished]


def find_overrun_s(now_s: float, *, began_s: float, allowed_s: float, next_s: float) -> float:
    """Return by how many seconds the middle of the next step would miss the announced time; positive: do not begin it.

    Ending half a step late is as near to what was announced as ending half a step early.

    Args:
        now_s: The time between two steps, on the clock of `began_s`.
        began_s: When the first step began.
        allowed_s: The time that was announced for all of them.
        next_s: How long the next one is likely to take.
    """
    return now_s - began_s + next_s / 2 - allowed_s


def prepare_stage(
    store: RecordStore,
    record: StudyRecord,
    *,
    home: Home,
    installation: Installation,
    load: OwnLoad | None,
    ui: Ui,
) -> TrialStage:
    """Load the data and keep the scripts of a study that compares nothing, and note both in the record."""
    stage = make_stage(
        record,
        scale=record.plan.scale,
        settings=with_synchronous_names(record.study).server.settings,
        scripts=store.keep_scripts(record.plan),
        output_dir=store.init_dir,
        home=home,
        installation=installation,
        load=load,
        ui=ui,
    )
    if record.dataset is None:
        store.write_record(msgspec.structs.replace(record, dataset=stage.dataset))
    return stage


def make_stage(
    record: StudyRecord,
    *,
    data: DataSpec | None = None,
    scale: int,
    settings: Mapping[str, SettingValue],
    scripts: Mapping[str, Path],
    output_dir: Path,
    home: Home,
    installation: Installation,
    load: OwnLoad | None,
    ui: Ui,
) -> TrialStage:
    """Load the data of one PostgreSQL and scale, unless they are loaded, and make what its trials share."""
    asked = record.study.server
    server = OwnServer(
        installation=installation,
        home=home,
        port=asked.port,
        standbys=asked.standbys,
        fails_over=record.study.failover is not None,
        access=None if load is None else load.access,
    )
    dataset = load_step(server, record, data=data, scale=scale, output_dir=output_dir, ui=ui)
    return TrialStage(
        server=server,
        generator=server.make_generator() if load is None else load.make_generator(server.make_generator()),
        load_links={} if load is None else load.ready.links,
        shared_hosts=frozenset() if load is None else load.ready.shared,
        dataset=dataset,
        study=record.study,
        plan=record.plan,
        settings=settings,
        cpu_count=record.load_cpu_count,
        scripts=scripts,
    )


def move_stage(stage: TrialStage, home: Home) -> TrialStage:
    """Return a stage with the same data, whose cluster lies in a home."""
    if not isinstance(stage.server, OwnServer):
        raise TypeError("only pgdyno's own servers can lie elsewhere")
    server = stage.server.in_home(home)
    local, made = server.make_generator(), stage.generator
    generator = made.beside(local) if isinstance(made, PgbenchGroup) else local
    return msgspec.structs.replace(stage, server=server, generator=generator)


def load_step(
    server: ServerUnderTest,
    record: StudyRecord,
    *,
    data: DataSpec | None = None,
    scale: int,
    output_dir: Path,
    ui: Ui,
) -> Dataset:
    """Load the data of a study, or those of a variant, into a server, unless they are loaded."""
    data = data or record.study.data
    predicted_s = next(step.predicted_s for step in record.plan.steps if step.kind is StepKind.LOAD)
    is_there = record.study.data.database is not None
    chosen = "".join(f", {key}={value}" for key, value in show_choices(combine_choices(data)).items())
    what = "make an empty cluster" if scale == EMPTY else f"load {record.plan.data_name or f'scale {scale}'}"
    title = f"{f'look at {record.plan.data_name}' if is_there else what}{chosen}"
    ui.begin_step(title, predicted_s=predicted_s)
    with writing(output_dir):
        output_dir.mkdir(exist_ok=True)
    dataset = server.load(
        data,
        scale,
        settings=record.study.server.settings,
        output_dir=output_dir,
        on_activity=ui.show_activity,
    )
    size = f", {format_bytes(dataset.total_bytes)}" if record.plan.dataset_bytes is None else ""
    loaded = "made" if scale == EMPTY else f"loaded in {dataset.init_total_s:.1f} s"
    how = "as it is" if is_there else "reused" if dataset.is_reused else loaded
    ui.end_step(how + size)
    return dataset


def trial_step(
    step: Step,
    trial: PlannedTrial,
    *,
    store: RecordStore,
    stage: TrialStage,
    ui: Ui,
    schedule: BlockSchedule | None = None,
) -> TrialOutcome:
    """Run one trial and make it a part of the record, however it ends."""
    ui.begin_step(title_of(trial, stage.plan), predicted_s=step.predicted_s)

    is_told = False

    def show_load(second: Progress) -> None:
        nonlocal is_told
        if schedule is not None:
            if schedule.is_stopped and not is_told:
                is_told = True
                ui.say("the block will end after the current round and be kept; press Ctrl-C again to abort it")
            ui.show_verdicts(schedule.news)
        ui.show_load(tps=second.tps, latency_ms=second.latency_average_ms)

    folder = store.begin_trial(trial.number)
    if stage.plan.search is not None:
        # Its rate was chosen just now, and who watches it would take it for a closed loop.
        write_planned(folder, trial)
    _predict(folder, store, stage, trial)
    outcome = run_trial(
        stage,
        trial,
        folder=folder,
        on_activity=ui.show_activity,
        on_load=show_load,
        schedule=schedule,
    )
    # A gap that every trial has is told once; the report lists it.
    known = [*stage.server.unseen, *(gap for earlier in store.read_trials() for gap in earlier.gaps)]
    store.write_trial(outcome.record)
    for gap in outcome.record.gaps:
        if gap not in known:
            ui.say(f"trial {trial.number}: {gap.source}: {gap.reason}")
    return outcome


def end_script_check(remarks: Sequence[str], ui: Ui) -> None:
    """End the step that tried scripts, and say what was remarked on them."""
    ui.end_step("they run" if not remarks else "see the notes")
    for remark in remarks:
        ui.say(remark)


def tell_failure(trial: PlannedTrial, error: PgdynoError, *, tries: int, ui: Ui) -> bool:
    """Say that a trial has failed, and return whether it is tried again."""
    ui.end_step(f"failed: {error.fact}")
    if tries == TRIES or not isinstance(error, StepFailedError | ShortPoolError):
        if isinstance(error, StepFailedError) and not error.hint:
            error.hint = "finished trials are kept: once the cause is gone, `pgdyno resume` continues"
        return False
    said = _REASON.search(error.detail)
    # Many lines are the end of a log.
    lines = error.detail.splitlines()
    words = said[1] if said else lines[0] if 0 < len(lines) <= _FEW_LINES else ""
    reason = f" after `{words.strip()}`" if words else ""
    ui.say(f"repeating trial {trial.number}{reason}; the files of the failed attempt are kept")
    return True


def title_of(trial: PlannedTrial, plan: Plan) -> str:
    """Return the title of a trial, short enough for its result to fit on the same line."""
    among = () if plan.experiment is None else [variant.name for variant in plan.experiment.variants]
    of = f" {shorten(trial.variants[0], among)}" if len(trial.variants) == 1 else ""
    of = of if trial.rate_tps is None else f" at {trial.rate_tps:,g} tps"
    return f"trial {trial.number}/{len(plan.trials)} {trial.workload}{of}"


def describe_outcome(outcome: TrialOutcome) -> str:
    """Describe a trial's figures in a few words, as pgbench printed them."""
    latency = "" if outcome.latency_ms is None else f", mean latency {round_to_three(outcome.latency_ms)} ms"
    if outcome.loading_s is not None:
        return f"loaded in {outcome.loading_s:.2f} s"
    if outcome.failover_s is not None:
        return f"writable again after {outcome.failover_s:.2f} s"
    return f"{outcome.tps:,.0f} tps{latency}" if outcome.tps is not None else "no result"


def _predict(folder: Path, store: RecordStore, stage: TrialStage, trial: PlannedTrial) -> None:
    """Write predictions for a trial into its empty folder.

    Nothing is predicted of variants that alternate, of loading, and of loads from load hosts, in parts, on standbys, or through a
    pooler, which decides how many transactions run at a time. Nor of a given server, whose checkpoints and caches others
    determine, too.
    """
    load = stage.plan.find_load(trial)
    is_plain = not load.is_loading and not load.parts and load.endpoint == PRIMARY
    if trial.is_block or stage.study.server.kind is ServerKind.GIVEN or stage.load_links or not is_plain:
        return
    place = store.read_record().find_place(trial.variants)
    predictions = predict_trial(
        PredictionBasis(
            workload=stage.plan.find_load(trial),
            dataset=stage.dataset,
            settings={**_settings_of_initdb(stage, trial), **stage.settings},
            version_major=stage.server.facts.major,
            cpu_count=stage.cpu_count,
            limits=read_limits(store)[place],
            is_warm=stage.cache_of(trial) is CacheState.WARM,
            earlier=_find_earlier(store, trial),
        )
    )
    if predictions:
        write_predictions(folder, predictions)


def _settings_of_initdb(stage: TrialStage, trial: PlannedTrial) -> dict[str, SettingValue]:
    """Return what initdb wrote into postgresql.conf because of its choices."""
    variants = stage.variants_of(trial)
    choices = variants[0].initdb if variants else combine_choices(stage.study.data)
    return {} if choices.segment_mb is None else {"max_wal_size": f"{SEGMENTS_OF_MAX_WAL * choices.segment_mb}MB"}


def _find_earlier(store: RecordStore, trial: PlannedTrial) -> TrialData | None:
    """Return the last finished trial of the same load and variant."""
    alike = [
        other
        for other in store.read_trials()
        if other.status is TrialStatus.FINISHED
        and (other.planned.workload, other.planned.variants) == (trial.workload, trial.variants)
    ]
    return read_trial_data(store.trial_dir(alike[-1].planned.number), alike[-1]) if alike else None
