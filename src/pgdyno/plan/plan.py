"""Turns a study and the machine's size into concrete steps: what runs, in which order, for how long, and why so.

Pure: the same study, machine and seed give the same plan. What the user left open is chosen here, each choice with
its reason. Nothing here promises what a run will show; predicted seconds are for people who wait.
"""

from __future__ import annotations

import enum
import math
import random

import msgspec

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.experiment import (
    LONGEST_BLOCK_S,
    SHORTEST_BLOCK_S,
    Arm,
    Experiment,
    count_least_rounds,
    draw_orders,
    plan_experiment,
)
from pgdyno.spec.study import CacheState, Study, WorkloadSpec
from pgdyno.spec.table import QueryMode
from pgdyno.spec.variant import DesignKind
from pgdyno.units import format_bytes

# Source: sizes of pgbench tables at fillfactor 100, PostgreSQL 15 to 18: 13.4 MB of accounts and 2.2 MB of its key
# for each unit of scale.
BYTES_PER_SCALE = 15_700_000
# Reserved beside pgbench's own connections: superuser_reserved_connections (3) and pgdyno's two.
RESERVED_CONNECTIONS = 5
DEFAULT_MAX_CONNECTIONS = 100
# WAL that a trial may keep (max_wal_size is a soft limit of 1 GB), and room for logs and records.
_DISK_SLACK_BYTES = 3_000_000_000
# Conservative rates for the prediction of waiting time: what small cloud volumes do.
_LOAD_BYTES_PER_S = 80_000_000
_COPY_BYTES_PER_S = 800_000_000
_START_STOP_S = 3.0
CHECK_S = 2.0
REPORT_S = 3.0
# What decides a difference of one standard deviation of a pair, and then some.
_DEFAULT_ROUNDS = 16
_DEFAULT_SWITCHBACK_S = 150.0
_NICE_SCALES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan must know of the machine: what this process may use, not what the hardware has."""

    cpu_count: float
    memory_bytes: int
    disk_free_bytes: int
    version_major: int
    """Of the study's PostgreSQL."""
    loaded_scales: frozenset[int] = frozenset()
    """Scales whose data lie loaded already for this study's server: they need no time and no room any more."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Something the study left open, what was chosen, and why."""

    name: str
    value: str
    reason: str


class PlannedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A load with nothing left open."""

    name: str
    scripts: tuple[tuple[str, int], ...]
    mode: QueryMode
    clients: int
    threads: int
    rate_tps: float | None
    latency_limit_ms: float | None
    max_tries: int


class PlannedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One load run from a known state. `number` counts from 1 in the order of running, `round` from 1.

    `arms` names the variant under test; in a switchback all that alternate; none in a study that compares nothing.
    """

    number: int
    round: int
    workload: str
    seed: int
    warm_up_s: float
    duration_s: float
    arms: tuple[str, ...] = ()


class StepKind(enum.Enum):
    """What a step does."""

    CHECK = "check"
    LOAD = "load"
    TRIAL = "trial"
    REPORT = "report"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a study with its predicted length."""

    kind: StepKind
    predicted_s: float
    trial: PlannedTrial | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that will be done; of a comparison's trials the most that its budget allows, since it ends when it knows."""

    scale: int
    dataset_bytes: int
    workloads: tuple[PlannedWorkload, ...]
    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]
    experiment: Experiment | None = None

    @property
    def predicted_s(self) -> float:
        """Seconds that all steps together are expected to take."""
        return sum(step.predicted_s for step in self.steps)

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """The trials in their order."""
        return tuple(step.trial for step in self.steps if step.trial is not None)

    def find_workload(self, name: str) -> PlannedWorkload:
        """The workload of that name."""
        return next(workload for workload in self.workloads if workload.name == name)

    def find_load(self, trial: PlannedTrial) -> PlannedWorkload:
        """The load of a trial: its workload, under its variant. Variants that alternate share one load."""
        workload = self.find_workload(trial.workload)
        if self.experiment is None:
            return workload
        return apply_arm(workload, self.experiment.find_arm(trial.arms[0]))


def plan_study(study: Study, machine: Machine, *, load_budget_s: float = 20.0) -> Plan:
    """Decide everything that a study leaves open and order its trials.

    Args:
        study: What was asked for.
        machine: What may be used.
        load_budget_s: How long loading may take when the scale is chosen here.

    Raises:
        SpecError: The study asks for what the server's settings cannot serve, or for more than its budget allows.
        HostError: The data do not fit on the disk.
    """
    choices: list[Choice] = []
    experiment = plan_experiment(study, version_major=machine.version_major)
    allowed_clients = _max_connections(study) - RESERVED_CONNECTIONS
    workloads = tuple(_plan_workload(workload, machine, allowed_clients, choices) for workload in study.workload)
    loads = _loads_of(workloads, experiment, allowed_clients)
    scale = study.data.scale or _choose_scale(loads, machine, load_budget_s, choices)
    bytes_per_scale = BYTES_PER_SCALE * 100 / study.data.fillfactor
    scales = {scale} if experiment is None else {arm.scale or scale for arm in experiment.arms}
    dataset_bytes = round(scale * bytes_per_scale)
    largest = max(scales)
    _check_disk(round(largest * bytes_per_scale), largest, machine)
    to_load = scales - machine.loaded_scales
    load_s = sum(3.0 + number * bytes_per_scale / _LOAD_BYTES_PER_S for number in to_load)
    restore_s = largest * bytes_per_scale / _COPY_BYTES_PER_S + _START_STOP_S
    if experiment is not None:
        choices.append(Choice(name="design", value=experiment.design.value, reason=experiment.reason))
    warm_up_s = _plan_warm_up(study, choices)
    times = _Times(
        warm_up_s=warm_up_s,
        duration_s=study.trials.duration_s,
        overhead_s=restore_s + warm_up_s,
        spare_s=math.inf,
    )
    if experiment is not None:
        fixed_s = CHECK_S + load_s + REPORT_S
        if experiment.budget_s is None:
            experiment = _choose_budget(experiment, len(workloads), times, fixed_s, choices)
        times = msgspec.structs.replace(times, spare_s=(experiment.budget_s or 0.0) - fixed_s)
    trials = _order_trials(study, workloads, experiment, times)
    steps = (
        Step(kind=StepKind.CHECK, predicted_s=CHECK_S),
        Step(kind=StepKind.LOAD, predicted_s=load_s),
        *(
            Step(kind=StepKind.TRIAL, predicted_s=restore_s + trial.warm_up_s + trial.duration_s, trial=trial)
            for trial in trials
        ),
        Step(kind=StepKind.REPORT, predicted_s=REPORT_S),
    )
    return Plan(
        scale=scale,
        dataset_bytes=dataset_bytes,
        workloads=workloads,
        steps=steps,
        choices=tuple(choices),
        experiment=experiment,
    )


def apply_arm(workload: PlannedWorkload, arm: Arm) -> PlannedWorkload:
    """The load of a workload under an arm."""
    clients = arm.clients or workload.clients
    return msgspec.structs.replace(
        workload,
        mode=arm.mode or workload.mode,
        clients=clients,
        threads=min(arm.threads or workload.threads, clients),
    )


def _loads_of(
    workloads: tuple[PlannedWorkload, ...], experiment: Experiment | None, allowed_clients: int
) -> tuple[PlannedWorkload, ...]:
    if experiment is None:
        return workloads
    loads = tuple(apply_arm(workload, arm) for workload in workloads for arm in experiment.arms)
    _check_clients(max(loads, key=lambda load: load.clients), allowed_clients)
    return loads


def _plan_workload(
    workload: WorkloadSpec, machine: Machine, allowed_clients: int, choices: list[Choice]
) -> PlannedWorkload:
    clients = workload.clients or _choose_clients(workload.name, machine, allowed_clients, choices)
    threads = workload.threads
    if threads is None:
        threads = max(1, min(clients, int(machine.cpu_count)))
    elif threads > clients:
        raise SpecError(
            f"workload {workload.name}: {threads} threads for {clients} clients",
            hint="pgbench serves several clients from a thread, never the other way round: lower threads",
        )
    planned = PlannedWorkload(
        name=workload.name,
        scripts=workload.weighted_scripts,
        mode=workload.mode,
        clients=clients,
        threads=threads,
        rate_tps=workload.rate_tps,
        latency_limit_ms=workload.latency_limit_ms,
        max_tries=workload.max_tries,
    )
    _check_clients(planned, allowed_clients)
    return planned


def _check_clients(load: PlannedWorkload, allowed_clients: int) -> None:
    if load.clients > allowed_clients:
        raise SpecError(
            f"workload {load.name}: {load.clients} clients do not fit into max_connections ="
            f" {allowed_clients + RESERVED_CONNECTIONS}",
            detail=f"{RESERVED_CONNECTIONS} connections are kept for administration and sampling",
            hint=f"lower clients, or set max_connections = {load.clients + 2 * RESERVED_CONNECTIONS}",
        )


def _choose_clients(name: str, machine: Machine, allowed_clients: int, choices: list[Choice]) -> int:
    wanted = max(4, round(4 * machine.cpu_count))
    clients = max(1, min(wanted, allowed_clients))
    reason = f"4 for each of {machine.cpu_count:g} CPUs: enough to keep them and the disk busy"
    if clients < wanted:
        reason = f"as many as max_connections lets in; {wanted} would be 4 for each CPU"
    choices.append(Choice(name=f"clients of {name}", value=str(clients), reason=reason))
    return clients


def _choose_scale(
    workloads: tuple[PlannedWorkload, ...], machine: Machine, load_budget_s: float, choices: list[Choice]
) -> int:
    # Below scale = clients, every tpcb-like client waits for the row of another one's branch.
    # Source: PostgreSQL 18 manual, pgbench, "Good Practices".
    least = 2 * max(workload.clients for workload in workloads)
    limits = {
        f"loading takes about {load_budget_s:.0f} s": round(load_budget_s * _LOAD_BYTES_PER_S / BYTES_PER_SCALE),
        "the data fit into an eighth of memory": machine.memory_bytes // 8 // BYTES_PER_SCALE,
        "the disk has room for them": (machine.disk_free_bytes - _DISK_SLACK_BYTES) // (2 * BYTES_PER_SCALE),
    }
    binding = min(limits, key=lambda reason: limits[reason])
    scale = max((nice for nice in _NICE_SCALES if nice <= limits[binding]), default=1)
    reason = f"the largest round one at which {binding}"
    if scale < least:
        scale, reason = least, "twice the clients: with fewer branches they would wait for each other's rows"
    choices.append(Choice(name="scale", value=str(scale), reason=reason))
    return scale


def _max_connections(study: Study) -> int:
    asked = study.server.settings.get("max_connections", DEFAULT_MAX_CONNECTIONS)
    try:
        return int(asked)
    except ValueError:
        raise SpecError(
            f"max_connections = {asked} is not a whole number", hint="for example max_connections = 200"
        ) from None


def _check_disk(dataset_bytes: int, scale: int, machine: Machine) -> None:
    # The loaded template and one working copy lie side by side.
    copies = 1 if scale in machine.loaded_scales else 2
    needed = copies * dataset_bytes + _DISK_SLACK_BYTES
    if needed > machine.disk_free_bytes:
        fits = max(0, (machine.disk_free_bytes - _DISK_SLACK_BYTES) // (copies * BYTES_PER_SCALE))
        what = f"use a scale of at most {fits}" if fits else "free some space"
        raise HostError(
            f"scale {scale} does not fit on the disk",
            detail=(
                f"needs {format_bytes(needed)} (template, working copy, WAL);"
                f" free are {format_bytes(machine.disk_free_bytes)}"
            ),
            hint=f"{what}, or put the work elsewhere with --home",
        )


def _plan_warm_up(study: Study, choices: list[Choice]) -> float:
    if study.trials.cache is CacheState.WARM or study.trials.warm_up_s == 0:
        return study.trials.warm_up_s
    choices.append(Choice(name="warm-up", value="none", reason="the cache is to be cold when the measured load begins"))
    return 0.0


class _Times(msgspec.Struct, frozen=True, kw_only=True):
    warm_up_s: float
    duration_s: float
    overhead_s: float
    """Of a trial, beside its measured load: restoring and warming up."""
    spare_s: float
    """For all trials together; in a study that compares nothing there is no limit."""


class _Order:
    """Numbers trials as they are drawn. A seed makes the plan repeatable."""

    def __init__(self, seed: int, times: _Times) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - nothing here is secret
        self.trials: list[PlannedTrial] = []
        self._times = times

    def add(self, round_number: int, workload: PlannedWorkload, arms: tuple[str, ...], duration_s: float) -> None:
        self.trials.append(
            PlannedTrial(
                number=len(self.trials) + 1,
                round=round_number,
                workload=workload.name,
                seed=self.draw.randrange(1, 2**31),
                warm_up_s=self._times.warm_up_s,
                duration_s=duration_s,
                arms=arms,
            )
        )


def _order_trials(
    study: Study, workloads: tuple[PlannedWorkload, ...], experiment: Experiment | None, times: _Times
) -> tuple[PlannedTrial, ...]:
    order = _Order(study.trials.seed, times)
    if experiment is None:
        # Workloads in random order within each round: drift of the machine then falls on all alike.
        # Source: Abedi & Brecht 2017, doi:10.1145/3030207.3030229 (randomised multiple interleaved trials).
        for number in range(1, study.trials.rounds + 1):
            for workload in order.draw.sample(workloads, k=len(workloads)):
                order.add(number, workload, (), times.duration_s)
    elif experiment.design is DesignKind.PAIRED:
        _draw_rounds(order, workloads, experiment, times)
    else:
        _draw_blocks(order, workloads, experiment, times)
    return tuple(order.trials)


def _draw_rounds(order: _Order, workloads: tuple[PlannedWorkload, ...], experiment: Experiment, times: _Times) -> None:
    """Rounds of the reference twice and every other arm once, in balanced order, as many as there is time for."""
    arms = [experiment.reference.name, *(arm.name for arm in experiment.arms)]
    round_s = (times.overhead_s + times.duration_s) * len(arms) * len(workloads)
    rounds, least = int(times.spare_s / round_s), count_least_rounds(experiment, len(workloads))
    if rounds < least:
        what = f"{least} rounds of {len(arms) * len(workloads)} trials, {round_s:.0f} s each"
        raise _too_little_time(experiment, least * round_s - times.spare_s, what)
    orders: dict[str, list[list[str]]] = {workload.name: [] for workload in workloads}
    for number in range(1, rounds + 1):
        for workload in order.draw.sample(workloads, k=len(workloads)):
            orders[workload.name] = orders[workload.name] or draw_orders(arms, order.draw)
            for arm in orders[workload.name].pop():
                order.add(number, workload, (arm,), times.duration_s)


def _draw_blocks(order: _Order, workloads: tuple[PlannedWorkload, ...], experiment: Experiment, times: _Times) -> None:
    """Blocks of continuous load, of one length, within which all arms alternate."""
    share_s = times.spare_s / len(workloads)
    blocks = max(1, math.ceil(share_s / (times.overhead_s + LONGEST_BLOCK_S)))
    block_s = math.floor(share_s / blocks - times.overhead_s)
    if block_s < SHORTEST_BLOCK_S:
        missing_s = len(workloads) * (times.overhead_s + SHORTEST_BLOCK_S) - times.spare_s
        raise _too_little_time(experiment, missing_s, f"{SHORTEST_BLOCK_S:.0f} s of load for each workload")
    arms = tuple(arm.name for arm in experiment.arms)
    for number in range(1, blocks + 1):
        for workload in order.draw.sample(workloads, k=len(workloads)):
            order.add(number, workload, arms, float(block_s))


def _choose_budget(
    experiment: Experiment, workloads_count: int, times: _Times, fixed_s: float, choices: list[Choice]
) -> Experiment:
    arms_count = len(experiment.arms) + 1
    if experiment.design is DesignKind.PAIRED:
        round_s = (times.overhead_s + times.duration_s) * arms_count * workloads_count
        budget_s = fixed_s + _DEFAULT_ROUNDS * round_s
        reason = (
            f"{_DEFAULT_ROUNDS} rounds of {arms_count * workloads_count} trials at the most; fewer when they decide"
        )
    else:
        budget_s = fixed_s + workloads_count * arms_count * _DEFAULT_SWITCHBACK_S
        each = "" if workloads_count == 1 else " for each workload"
        reason = (
            f"{_DEFAULT_SWITCHBACK_S:.0f} s for each variant and twice for the reference{each}; less when it is decided"
        )
    choices.append(Choice(name="minutes", value=f"{budget_s / 60:.0f}", reason=reason))
    return msgspec.structs.replace(experiment, budget_s=budget_s)


def _too_little_time(experiment: Experiment, missing_s: float, what: str) -> SpecError:
    budget_s = experiment.budget_s or 0.0
    minutes = math.ceil((budget_s + missing_s) / 60.0 + 0.05)
    return SpecError(
        f"{budget_s / 60:g} minutes are too few for a verdict",
        detail=f"it takes {what}, beside loading and restoring",
        hint=f"--minutes {minutes}, shorter trials, or fewer variants and workloads",
    )
