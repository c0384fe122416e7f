"""Run the sweep that ends a bench: TPS by the number of clients, under the settings that won.

The sweep is a record of its own within the study's, so that it is planned, run, resumed and read as any sweep is. Its
settings are chosen when it begins, by what was proven then, and stay: a resumed sweep goes on under the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.derived_gain import invert_verdict
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.conduct.experiment import run_experiment
from pgdyno.conduct.finished import are_own_trials_finished
from pgdyno.conduct.machine import ReadyMachine
from pgdyno.conduct.sequential import SequentialComparison
from pgdyno.conduct.ui import Ui
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Choice, Machine
from pgdyno.plan.scaling import make_client_sweep, plan_sweep
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import STOCK
from pgdyno.record.types import ServerFacts, StudyRecord, choose_format
from pgdyno.run.host.clock import local_now


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The variant whose settings the sweep runs under; no name where nothing was compared."""

    name: str | None
    reason: str


def run_scaling(store: RecordStore, ready: ReadyMachine, ui: Ui) -> None:
    """Run the sweep that follows a study, or what is left of it."""
    if not store.scaling.exists:
        facts = ready.installation.facts
        begin_scaling(store, machine=ready.machine, facts=facts, other_servers=ready.other_servers, ui=ui)
    elif are_own_trials_finished(store.scaling):
        return
    run_experiment(store.scaling, tuned=store.read_record().tuned, home=ready.home, load=ready.load, ui=ui)


def choose_winner(comparison: Comparison, *, is_layered: bool, without: Collection[str]) -> Winner:
    """Return the fastest variant that is proven to be faster than the reference on a workload; the reference where none is.

    Where a derived set is the reference and its layers are left out in turn, the winner is the whole set or stock.

    Args:
        comparison: On the workload.
        is_layered: Whether the comparison leaves out the layers of a derived set.
        without: The variants that dropped out: the sweep would fail under them, however fast they were before.
    """
    asked = {q.variant: q.verdict for q in comparison.questions if q.metric == comparison.primary}
    base = comparison.reference
    if is_layered and STOCK in asked:
        asked, base = {comparison.reference: invert_verdict(asked[STOCK])}, STOCK
    faster = {
        variant: verdict.effect_ratio or 0.0 for variant, verdict in asked.items() if verdict.kind is VerdictKind.FASTER
    }
    best = max((one for one in faster if one not in without), key=lambda variant: faster[variant], default=None)
    if best is None:
        why = "what is proven to be faster dropped out" if faster else "nothing is proven to be faster"
        name = comparison.reference if base in without else base
        return Winner(name=name, reason=f"{why} on {comparison.workload}")
    return Winner(name=best, reason=f"proven to be faster than {base} on {comparison.workload}")


def begin_scaling(
    store: RecordStore,
    *,
    machine: Machine,
    facts: ServerFacts,
    other_servers: Mapping[str, ServerFacts] | None = None,
    ui: Ui,
) -> None:
    """Create the record of the sweep within that of the study, under the settings that won.

    Args:
        store: Of the study's record.
        machine: Resources that it may use.
        facts: The PostgreSQL of the study's reference.
        other_servers: The PostgreSQL of each variant that runs on another one, by the variant's name; None if all run on the
            reference's.
        ui: Shows the plan.
    """
    record = store.read_record()
    winner = _find_winner(store, record)
    variant = next((each for each in record.study.variant if each.title == winner.name), None)
    study = make_client_sweep(record.study, record.plan, scripts=store.locate_scripts(record.plan), variant=variant)
    plan = plan_sweep(study, record.plan, machine)
    if winner.name is not None:
        chosen = Choice(name="settings", value=winner.name, reason=winner.reason)
        plan = msgspec.structs.replace(plan, choices=(chosen, *plan.choices))
    following = msgspec.structs.replace(
        record,
        format_version=choose_format(study, plan, record.format_version),
        name="clients",
        started_at=local_now().isoformat(timespec="seconds"),
        study=study,
        plan=plan,
        server=facts if variant is None else (other_servers or {}).get(variant.title, facts),
        other_servers={},
        dataset=None,
        refused_variants={},
        final_looks=msgspec.UNSET,
        tuned=None,
        wants_card=False,
    )
    store.scaling.remove_incomplete()
    copies = store.scaling.name_copies(following)
    store.scaling.create(following, study_toml=format_pinned(study, plan, scripts=copies))
    # Its study names copies of its own: they are there also where it is interrupted before its first trial.
    store.scaling.keep_scripts(plan)
    store.scaling.keep_init(store.keep_init(study.data))
    loads = study.sweep[0].levels
    why = "" if winner.name is None else f" with {winner.name} settings ({winner.reason})"
    line = f"scaling with clients: {loads[0]} to {loads[-1]} clients on {study.workload[0].name}{why}"
    # What the comparison left of its time is no part of what is still to be done.
    ui.announce((line,), total_s=plan.predicted_s)


def _find_winner(store: RecordStore, record: StudyRecord) -> Winner:
    workload, experiment = record.study.find_swept_workload(), record.plan.experiment
    if experiment is None or workload is None:
        return Winner(name=None, reason="nothing was compared")
    sequential = SequentialComparison(record, experiment)
    sequential.take_finished(store)
    is_layered = record.tuned is not None and record.tuned.is_layered
    comparison = sequential.compare_workload(workload.name)
    return choose_winner(comparison, is_layered=is_layered, without=record.refused_variants)
