"""Run a comparison: try the variants, load, then run trials until every question is decided or the time is over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.conduct.load.own import OwnLoad
from pgdyno.conduct.runner import TrialRunner, refuse_variants
from pgdyno.conduct.sequential import SequentialComparison
from pgdyno.conduct.short_pool import give_way, is_derived
from pgdyno.conduct.steps import make_stage, move_stage
from pgdyno.conduct.ui import Ui
from pgdyno.errors import ShortPoolError, SpecError
from pgdyno.plan.experiment import Experiment, Variant, count_starts
from pgdyno.plan.places import place_of
from pgdyno.plan.plan import try_variants_s
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import Tuned
from pgdyno.record.types import StudyRecord
from pgdyno.run.change.kernel_file import check_values
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.template import EMPTY
from pgdyno.run.cluster.trial_settings import VariantServer, try_variants
from pgdyno.run.postgres.installation import find_installation
from pgdyno.run.trial import fact_of
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.initdb import with_choices


def run_experiment(store: RecordStore, *, tuned: Tuned | None, home: Home, load: OwnLoad | None, ui: Ui) -> None:
    """Run the trials of a comparison that are still of use.

    Args:
        store: Of its record.
        tuned: The derived settings among those of its variants; they give way to the machine.
        home: Where its servers run.
        load: Load hosts, from which its loads come; None if they come from this machine.
        ui: Shows the progress.
    """
    can_go_on = True
    while can_go_on:
        can_go_on = False
        try:
            _run_ready(store, store.read_record(), tuned=tuned, home=home, load=load, ui=ui)
        except ShortPoolError as error:
            if not is_derived(error, tuned):
                raise
            can_go_on = give_way(store, error, ui=ui)


def _run_ready(
    store: RecordStore, record: StudyRecord, *, tuned: Tuned | None, home: Home, load: OwnLoad | None, ui: Ui
) -> None:
    experiment = record.plan.experiment
    assert experiment is not None  # noqa: S101 - the caller looked
    scripts = store.keep_scripts(record.plan)
    servers = {
        variant.name: VariantServer(
            variant=variant, installation=find_installation(variant.server, user=home.user, software_dir=home.software)
        )
        for variant in experiment.variants
    }
    record = _try_variants(store, record, experiment, servers, tuned=tuned, home=home, ui=ui)
    stages = _make_stages(store, record, experiment, servers, scripts=scripts, home=home, load=load, ui=ui)
    # Where trials load their data themselves, none are there before.
    if record.dataset is None and not any(workload.is_loading for workload in record.plan.workloads):
        record = msgspec.structs.replace(record, dataset=stages[experiment.reference.name].dataset)
        store.write_record(record)
    run_rounds(store, record, experiment, stages, ui=ui)


def run_rounds(
    store: RecordStore, record: StudyRecord, experiment: Experiment, stages: Mapping[str, TrialStage], *, ui: Ui
) -> None:
    """Run the trials of a comparison whose variants are ready, until every question is decided or the time is over."""
    sequential = SequentialComparison(record, experiment)
    sequential.take_finished(store)
    TrialRunner(store=store, record=record, experiment=experiment, stages=stages, sequential=sequential, ui=ui).run()


def _try_variants(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, VariantServer],
    *,
    tuned: Tuned | None,
    home: Home,
    ui: Ui,
) -> StudyRecord:
    for variant in experiment.variants:
        check_values(variant.sysctl)
    ui.begin_step("try the variants", predicted_s=try_variants_s(count_starts(experiment.variants)))
    refused = try_variants(home, list(servers.values()), on_activity=ui.show_activity)
    ui.end_step("all start" if not refused else f"{len(refused)} of {len(servers)} do not start")
    for error in refused.values():
        if isinstance(error, ShortPoolError) and is_derived(error, tuned):
            raise error
    reference = experiment.reference.name
    if reference in refused:
        error = refused[reference]
        raise SpecError(f"the reference {reference} does not start", detail=error.detail, hint=error.hint)
    if len(refused) == len(experiment.variants) - 1:
        raise SpecError(
            "only the reference starts: there is nothing to compare",
            detail="\n".join(f"{name}: {error.detail or error.fact}" for name, error in refused.items()),
            hint="change the settings that the servers refuse"
            if _is_one_build(servers)
            else "mend the build, or change the settings that it refuses",
        )
    for name, error in refused.items():
        ui.say(f"{name}: {error.fact}: {error.detail}")
    # A resumed study tries again what did not start, or was given up: its reason may be gone.
    facts = {name: fact_of(error) for name, error in refused.items()}
    return refuse_variants(store, msgspec.structs.replace(record, refused_variants={}), facts)


def _is_one_build(servers: Mapping[str, VariantServer]) -> bool:
    return len({each.installation.bindir for each in servers.values()}) == 1


def _make_stages(
    store: RecordStore,
    record: StudyRecord,
    experiment: Experiment,
    servers: Mapping[str, VariantServer],
    *,
    scripts: Mapping[str, Path],
    home: Home,
    load: OwnLoad | None,
    ui: Ui,
) -> dict[str, TrialStage]:
    """Make a stage for each variant; variants of one PostgreSQL, one scale and the same choices of initdb share their data."""
    stages: dict[str, TrialStage] = {}
    is_loading = any(workload.is_loading for workload in record.plan.workloads)
    for variant in experiment.variants:
        if variant.name in record.refused_variants:
            continue
        there = home.find(place_of(record.study.data, variant))
        other = next((s for n, s in stages.items() if _shares_data(experiment.find_variant(n), variant)), None)
        if other is not None:
            moved = move_stage(other, there)
            stages[variant.name] = msgspec.structs.replace(moved, settings=variant.server.settings)
            continue
        # All are loaded in one home, where further studies look for them.
        loaded = make_stage(
            record,
            data=with_choices(record.study.data, variant.initdb),
            scale=EMPTY if is_loading else variant.scale or record.plan.scale,
            settings=variant.server.settings,
            scripts=scripts,
            output_dir=store.init_dir if not stages else store.init_dir / str(len(stages)),
            home=home,
            installation=servers[variant.name].installation,
            load=load,
            ui=ui,
        )
        stages[variant.name] = move_stage(loaded, there)
    return stages


def _shares_data(one: Variant, other: Variant) -> bool:
    clusters = [
        (variant.scale, variant.initdb, msgspec.structs.replace(variant.server, settings={}))
        for variant in (one, other)
    ]
    return clusters[0] == clusters[1]
