"""What a plan is made of: the machine it is for, the loads, the trials and the steps.

Values only. What they become, and why, is chosen in the other modules of this room.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.search import Search
from pgdyno.spec.table import QueryMode


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan must know of the machine: what this process may use, not what the hardware has."""

    cpu_count: float
    memory_bytes: int
    disk_free_bytes: int
    version_major: int
    """Of the study's PostgreSQL."""
    loaded_scales: frozenset[int] = frozenset()
    """Scales whose data lie loaded already for this study's server: they need no time and no room any more."""
    write_bytes_per_s: float | None = None
    """To its disk, in large pieces; None where nobody has measured it."""
    disk_card_s: float = 0.0
    """That measuring its disk takes before the first trial; it is no part of what a budget is for."""


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

    `variants` names the variant under test; in a switchback all that alternate; none in a study that compares nothing.
    """

    number: int
    round: int
    workload: str
    seed: int
    warm_up_s: float
    duration_s: float
    variants: tuple[str, ...] = msgspec.field(default=(), name="arms")
    rate_tps: float | None = None
    """Of a search's trial, chosen when its turn comes; None in a closed loop, and where the workload says it."""


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
    """All that will be done; of a comparison's or a search's trials the most that its budget allows: it ends when it knows."""

    scale: int
    dataset_bytes: int
    workloads: tuple[PlannedWorkload, ...]
    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]
    experiment: Experiment | None = None
    search: Search | None = None

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
        if trial.rate_tps is not None:
            return msgspec.structs.replace(workload, rate_tps=trial.rate_tps)
        if self.experiment is None:
            return workload
        return apply_variant(workload, self.experiment.find_variant(trial.variants[0]))


def apply_variant(workload: PlannedWorkload, variant: Variant) -> PlannedWorkload:
    """The load of a workload under a variant."""
    clients = variant.clients or workload.clients
    return msgspec.structs.replace(
        workload,
        mode=variant.mode or workload.mode,
        clients=clients,
        threads=min(variant.threads or workload.threads, clients),
    )
