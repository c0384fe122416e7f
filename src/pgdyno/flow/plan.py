"""`pgdyno plan`: the steps that a study would take on this machine, with the predicted time."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.disk.credits import CreditEnd, find_credits, plan_uses, predict_ends
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings
from pgdyno.conduct.cards.rates import describe_small_file, with_disk_rates
from pgdyno.conduct.cards.study import predict_study_cards_s
from pgdyno.conduct.emulation import as_emulated
from pgdyno.conduct.request_check import check_settings, find_kernel_refusal
from pgdyno.conduct.workspace import Workspace, read_machine
from pgdyno.errors import SpecError
from pgdyno.explain.doubts.credits import describe_end
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.minutes import list_notes
from pgdyno.plan.plan import Plan, Step, StepKind, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.plan.types import Choice
from pgdyno.plan.variants import reference_data
from pgdyno.record.types import ServerFacts
from pgdyno.report.forms.plain import Heading, render_rows
from pgdyno.report.restore_words import describe_between
from pgdyno.run.cluster.home import Home, find_existing_folder
from pgdyno.run.cluster.template import find_loaded_scales
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.process import find_server_user
from pgdyno.run.postgres.installation import Installation, read_named_facts
from pgdyno.spec.study import ServerKind, Study
from pgdyno.units import count_things, format_bytes

# A file system has some per cent less room than its disk.
_SAME_DISK_RATIO = 0.8


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, ready to be shown."""

    plan: Plan
    scaling: Plan | None = None
    """The sweep over clients that follows; None where none follows."""
    credits: tuple[CreditEnd, ...] = ()
    """When the burst credits of the declared machine end; empty where none are known."""
    obstacles: tuple[str, ...] = ()
    """Why `run` would refuse it under the present account."""
    caution: str | None = None
    """Why it may take longer than predicted; None without a reason."""

    @property
    def predicted_s(self) -> float:
        """Return how long all steps take."""
        return sum(plan.predicted_s for plan in (self.plan, self.scaling) if plan is not None)

    def to_json(self) -> bytes:
        """Return the plan as JSON."""
        names = ("predicted_s", "plan", "scaling", "credits", "obstacles", "caution")
        return msgspec.json.encode({name: getattr(self, name) for name in names})

    def to_terminal(self) -> RenderableType:
        """Return a table of the steps with their predicted seconds."""
        plans = tuple(filter(None, (self.plan, self.scaling)))
        steps = [
            (step.kind.value, f"{step.predicted_s:.0f}", _describe_step(plan, step))
            for plan in plans
            for step in plan.steps
        ]
        choices = [("chosen", "", f"{one.name} = {one.value}: {one.reason}") for one in self.plan.choices]
        notes = [("note", "", note) for note in filter(None, (*self.obstacles, self.caution, *list_notes(self.plan)))]
        return render_rows(
            (Heading("step"), Heading("seconds", is_number=True), Heading("what")),
            [*steps, *self._list_between(), *self._list_credits(), *choices, *notes],
            caption=f"{self.predicted_s / 60:.1f} minutes in all",
        )

    def _list_between(self) -> list[tuple[str, str, str]]:
        between, experiment = self.plan.between, self.plan.experiment
        if between is None:
            return []
        has_turns = experiment is not None and experiment.takes_turns
        name, shared = ("between rounds", "once for all loads of a round: ") if has_turns else ("between trials", "")
        return [(name, f"{between.total_s:.0f}", shared + describe_between(between))]

    def _list_credits(self) -> list[tuple[str, str, str]]:
        return [
            ("credits", "" if end.after_s is None else f"{end.after_s:.0f}", describe_end(end)) for end in self.credits
        ]


def _describe_step(plan: Plan, step: Step) -> str:
    is_loading = any(workload.is_loading for workload in plan.workloads)
    if step.trial is None:
        loaded = "empty clusters" if is_loading else plan.data_words
        return loaded if step.kind is StepKind.LOAD else ""
    workload = plan.find_load(step.trial)
    when = "only observed" if step.trial.is_observed else f"round {step.trial.round}"
    how = f"at {plan.data_words}" if is_loading else count_things(workload.clients, "client")
    if workload.load_hosts is not None:
        how += f" from {count_things(workload.load_hosts, 'load host')}"
    if workload.parts:
        how += f" ({', '.join(part.words for part in workload.parts)})"
    # A workload may be called by its clients, as a variant is.
    what = dict.fromkeys((workload.name, *(() if step.trial.is_block else step.trial.variants), how, when))
    return f"{step.trial.number}: {', '.join(what)}"


def view_plan(study: Study, *, place: Workspace) -> PlanView:
    """Plan a study for this machine.

    Raises:
        SpecError: It measures a given server, of which nothing is known here, or `run` would refuse it under any account.
        HostError: It cannot run here.
    """
    if study.server.kind is ServerKind.GIVEN:
        raise SpecError(
            "a study of a given server is planned when it runs",
            detail="its steps depend on what the server says of itself",
            hint="`pgdyno run` asks the server, and shows the predicted minutes before the first trial",
        )
    place = place.of_study(study)
    server = reference_server(study)
    programs = read_named_facts(server)
    check_settings(study, programs.major)
    # The steps are the same for an account that may run them.
    refusal = find_kernel_refusal(study, programs.major)
    obstacles = () if refusal is None else (": ".join(filter(None, (refusal.fact, refusal.hint))),)
    machine = read_machine(study, place.home, version_major=programs.major)
    declared_bytes, elsewhere = None, ""
    if study.is_emulated:
        machine = as_emulated(machine, study, place)
    else:
        loaded = _find_loaded(study, server.kind, programs, place)
        declared_bytes = _find_declared_room(study, place.home)
        if declared_bytes is not None:
            # Where the home is on another machine than the declared one, so are the homes of variants.
            elsewhere = ", and those of variants are not looked at" if machine.homes_free_bytes else ""
            machine = msgspec.structs.replace(machine, disk_free_bytes=declared_bytes, homes_free_bytes={})
        machine = msgspec.structs.replace(machine, loaded_scales=loaded)
        machine = with_disk_rates(machine, study, place.home)
    if study.host is not None:
        # As `run` does before the first trial.
        card_s = predict_study_cards_s(study, place.home, Path(programs.bindir))
        machine = msgspec.structs.replace(machine, disk_card_s=card_s)
    plan = plan_study(study, machine)
    if declared_bytes is not None:
        room_words = "as the study declares; the disk of this home is smaller" + elsewhere
        choice = Choice(name="room for data", value=format_bytes(declared_bytes), reason=room_words)
        plan = msgspec.structs.replace(plan, choices=(*plan.choices, choice))
    host = study.host
    ends = () if host is None else predict_ends(find_credits(host), plan_uses(plan, host))
    return PlanView(
        plan=plan,
        scaling=plan_scaling(study, plan, machine),
        credits=ends,
        obstacles=obstacles,
        caution=describe_small_file(machine, plan.dataset_bytes or 0, place.home),
    )


def _find_declared_room(study: Study, home: Path) -> int | None:
    """Return the bytes that a declared disk has room for; None if the home's disk may be the declared one."""
    disk = None if study.host is None else study.host.disk
    if disk is None:
        return None
    capacity = compute_ceilings(disk).capacity_bytes
    room = disk.free_bytes or (None if capacity is None else capacity.value)
    here = read_disk_facts(find_existing_folder(home)).size_bytes
    return int(room) if room is not None and here < _SAME_DISK_RATIO * room else None


def _find_loaded(study: Study, kind: ServerKind, programs: ServerFacts, place: Workspace) -> frozenset[int]:
    """Find the scales that the home has loaded, as far as this account may look."""
    home = Home(place.home, find_server_user(place.run_as))
    if not os.access(home.templates, os.R_OK | os.X_OK):
        return frozenset()
    installation = Installation(bindir=Path(programs.bindir), facts=programs, kind=kind)
    return find_loaded_scales(home, installation, reference_data(study))
