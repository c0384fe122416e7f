"""Define the types of a plan: machine, loads, trials and steps.

They hold values only; the other modules of this room choose the values.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.search import Search
from pgdyno.spec.failover import FailoverKind
from pgdyno.spec.pooler import PRIMARY, REPLICAS, PoolMode
from pgdyno.spec.study import READING_SCRIPTS, RestorePolicy
from pgdyno.spec.table import QueryMode

# Source: PgBouncer's changelog, 1.21.0: max_prepared_statements.
KEEPS_STATEMENTS_SINCE = (1, 21)
"""The first version of PgBouncer that keeps prepared statements in transaction mode."""


class PoolerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """An installed PgBouncer."""

    path: str
    version: tuple[int, int]
    """Its major and minor number, such as 1 and 18."""

    @property
    def keeps_statements(self) -> bool:
        """True if prepared statements work where transactions share server connections."""
        return self.version >= KEEPS_STATEMENTS_SINCE


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that this process may use, which may be less than the hardware has."""

    cpu_count: float
    load_cpu_count: float | None = None
    """Of the load host that has the fewest; None where the load comes from this machine."""
    memory_bytes: int
    disk_free_bytes: int
    wal_free_bytes: int | None = None
    """Free bytes on the disk of pg_wal, the fullest if there are several; None if it lies with the data."""
    homes_free_bytes: dict[str, int] = {}
    """Free bytes in the homes that variants name."""
    version_major: int
    """Major version of the study's PostgreSQL, in a comparison of the reference's."""
    other_majors: dict[str, int] = {}
    """Major version of each variant on another PostgreSQL than the reference, by the variant's name."""
    loaded_scales: frozenset[int] = frozenset()
    """Scales whose data are already loaded for the study's server: they need no further time or space."""
    write_bytes_per_s: float | None = None
    """Sequential write rate of the disk; None if it was not measured."""
    read_bytes_per_s: float | None = None
    """Sequential read rate of the disk; None if it was not measured."""
    pooler: PoolerProgram | None = None
    """The PgBouncer that pgdyno would start; None if the study needs none."""
    random_write_iops: float | None = None
    """Pages that the disk writes here and there in a second; None if it was not measured."""
    rates_file_bytes: int | None = None
    """Size of the test file of the card that a plan took these three from; None if they are declared, or not known."""
    withheld_settings: frozenset[str] = frozenset()
    """Settings of a given server that a reload changes, and that its sessions may not choose for themselves; in lower case."""
    live_obstacle: str | None = None
    """Why nothing can be compared live on a given server, as far as its connection tells; None if nothing keeps it from that."""
    shared_buffers_bytes: int | None = None
    """Of a given server, which all live loads share; None of pgdyno's own, of which each variant has one."""
    free_connections: int | None = None
    """How many more a given server takes from this role; None of pgdyno's own, or if that could not be read."""
    has_pooled_sessions: bool = False
    """Whether a pooler gives each client of a given server a session of its own, of which it may have few."""
    disk_card_s: float = 0.0
    """Seconds for measuring the disk before the first trial, which do not count towards the time budget."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the study left open, the choice, and its reason."""

    name: str
    value: str
    reason: str


class PlannedFailover(msgspec.Struct, frozen=True, kw_only=True):
    """The failover in each trial of a load."""

    kind: FailoverKind
    at_s: float
    """Seconds of load before the primary ends."""
    after_s: float
    """Seconds of load on the standby that took over."""
    promote_within_s: float


class PlannedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a load. A pgbench of its own makes it, or one for each standby that its clients read from."""

    name: str
    scripts: tuple[tuple[str, int], ...]
    clients: int
    threads: int
    endpoint: str
    rate_tps: float | None = None
    """Scheduled transactions per second; None in a closed loop."""

    @property
    def words(self) -> str:
        """How it loads what: `4 of tpcb-like at the primary`."""
        rate = "" if self.rate_tps is None else f" at {self.rate_tps:,g} tps"
        return f"{self.clients} of {self.name}{rate} at the {self.endpoint}"


class PlannedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A completely planned load. One without scripts loads the data by `pgbench -i`."""

    name: str
    scripts: tuple[tuple[str, int], ...]
    mode: QueryMode
    clients: int
    threads: int
    rate_tps: float | None
    latency_limit_ms: float | None
    max_tries: int
    failover: PlannedFailover | None = None
    """None: the server stays up."""
    endpoint: str = PRIMARY
    """What the clients connect to: the server itself, its standbys, or a pooler by its name."""
    load_hosts: int | None = None
    """Number of load hosts that it comes from, the first of the study; None: all that the study names."""
    parts: tuple[PlannedPart, ...] = ()
    """The parts that run side by side as this load; their scripts follow each other in `scripts`. Empty if all clients do the same."""

    @property
    def is_loading(self) -> bool:
        """True if each trial of this workload loads the data."""
        return not self.scripts

    def count_hosts(self, named: int) -> int:
        """Return how many load hosts take part, of the number that the study names: each of them has a client or more."""
        return min(self.load_hosts or named, self.clients)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """What its clients connect to, each once."""
        return tuple(dict.fromkeys(one.endpoint for one in self.list_parts()))

    @property
    def is_scheduled(self) -> bool:
        """True if any of its transactions are scheduled at a rate, so that clients also wait for their schedule."""
        return any(part.rate_tps is not None for part in self.list_parts())

    @property
    def writing_clients(self) -> int:
        """Clients that may write."""
        return sum(
            part.clients for part in self.list_parts() if any(name not in READING_SCRIPTS for name, _ in part.scripts)
        )

    def count_clients(self, endpoint: str) -> int:
        """Count the clients that connect to an endpoint."""
        return sum(part.clients for part in self.list_parts() if part.endpoint == endpoint)

    def list_parts(self) -> tuple[PlannedPart, ...]:
        """List its parts; a load without parts counts as its own only part."""
        return self.parts or (
            PlannedPart(
                name=self.name,
                scripts=self.scripts,
                clients=self.clients,
                threads=self.threads,
                endpoint=self.endpoint,
                rate_tps=self.rate_tps,
            ),
        )


class PlannedPooler(msgspec.Struct, frozen=True, kw_only=True):
    """A pooler with all choices made: a PgBouncer that pgdyno starts beside its own server, or one that runs already."""

    name: str
    mode: PoolMode
    size: int | None
    """Server connections of its pool; None of one that runs already."""
    most_clients: int
    """Connections of the largest load that it takes."""
    dsn: str | None = None
    """Where one that runs already is reached; None of one that pgdyno starts."""
    program: PoolerProgram | None = None
    """What pgdyno starts; None of one that runs already."""

    @property
    def loses_statements(self) -> bool:
        """True if prepared statements are known not to work through it; of one that runs already, only trying them tells."""
        return self.mode is PoolMode.TRANSACTION and self.program is not None and not self.program.keeps_statements


class PlannedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One load that runs from a known state; `number` and `round` count from 1, `number` in the order of running.

    Trials that are only observed precede all rounds: their `round` is 0.
    `variants` names the variant under test, or all variants that alternate in a switchback; empty without a comparison.
    """

    number: int
    round: int
    workload: str
    seed: int
    warm_up_s: float
    duration_s: float
    variants: tuple[str, ...] = msgspec.field(default=(), name="arms")
    rate_tps: float | None = None
    """Rate of a search's trial, chosen just before it runs; None in a closed loop, or if the workload has a rate."""

    @property
    def is_block(self) -> bool:
        """True if several variants alternate in this trial, under one load."""
        return len(self.variants) > 1

    @property
    def is_observed(self) -> bool:
        """True if the trial runs before live pairs, for what the samplers see of it: no result counts it."""
        return self.round == 0


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted seconds from the end of one trial's load to the warm-up of the next."""

    policy: RestorePolicy
    restore_s: float
    """For restoring; the time of a restore command is not known and counts as 0."""
    warm_s: float
    """For reading the data into the caches."""
    server_s: float
    """For stopping and starting the server, and the trial's files."""
    first_s: float
    """In addition before the first trial, which finds no copy that was used before."""

    @property
    def total_s(self) -> float:
        """All of it, between any two trials."""
        return self.restore_s + self.warm_s + self.server_s


class StepKind(enum.Enum):
    """Kind of a step."""

    CHECK = "check"
    LOAD = "load"
    TRIAL = "trial"
    REPORT = "report"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a study with its predicted length."""

    kind: StepKind
    predicted_s: float
    trial: PlannedTrial | None = None


class PlannedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a sweep over clients that follows, as long as it has no record of its own."""

    predicted_s: float
    trial_count: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of a study. A comparison or a search has as many trials as its budget allows, and may end sooner."""

    scale: int
    """Scale of pgbench's tables; of other data 1, which is `:scale` in scripts."""
    dataset_bytes: int | None
    """Size of the data when they are loaded; None where only loading shows it."""
    workloads: tuple[PlannedWorkload, ...]
    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]
    experiment: Experiment | None = None
    search: Search | None = None
    first_extra: int | None = None
    """Number of the first trial that was planned when the others were over and minutes were left; None without such."""
    between: Between | None = None
    """The time between two trials; None in older records, and for data whose size only loading shows."""
    data_name: str | None = None
    """What the data are called: the name of an SQL file, or `database NAME`; None for pgbench's tables."""
    poolers: tuple[PlannedPooler, ...] = ()
    """Those that loads connect to."""
    sweep: PlannedSweep | None = None
    """What follows; None where nothing does, and in older records."""

    @property
    def takes_turns(self) -> bool:
        """Whether its loads take turns on one server."""
        return self.experiment is not None and self.experiment.takes_turns

    @property
    def data_words(self) -> str:
        """Name the data: `scale 50`, `schema.sql`, or `database app`."""
        return self.data_name or f"scale {self.scale:,}"

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of all steps together."""
        return sum(step.predicted_s for step in self.steps)

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """Trials in the order of running."""
        return tuple(step.trial for step in self.steps if step.trial is not None)

    def find_workload(self, name: str) -> PlannedWorkload:
        """Return the workload with that name."""
        return next(workload for workload in self.workloads if workload.name == name)

    @property
    def script_loads(self) -> tuple[PlannedWorkload, ...]:
        """Return the loads of each workload, or of its parts, that differ in their scripts or in whether they run on standbys."""
        loads = (
            msgspec.structs.replace(load, scripts=part.scripts, endpoint=part.endpoint, parts=())
            for load in self.loads
            for part in (load.list_parts() if load.parts else (load,))
        )
        return tuple({(load.name, load.scripts, load.endpoint == REPLICAS): load for load in loads}.values())

    @property
    def loads(self) -> tuple[PlannedWorkload, ...]:
        """Return the load of each workload under each variant."""
        if self.experiment is None:
            return self.workloads
        return tuple(apply_variant(each, variant) for each in self.workloads for variant in self.experiment.variants)

    def find_pooler(self, endpoint: str) -> PlannedPooler | None:
        """Return the pooler that an endpoint names; None for the server itself and its standbys."""
        return next((one for one in self.poolers if one.name == endpoint), None)

    def find_pooler_of(self, load: PlannedWorkload) -> PlannedPooler | None:
        """Return the pooler that a load, or one of its parts, connects to; None without one."""
        return next((one for one in self.poolers if one.name in load.endpoints), None)

    def find_load(self, trial: PlannedTrial) -> PlannedWorkload:
        """Return the load of a trial: its workload under its variant. Alternating variants share one load."""
        workload = self.find_workload(trial.workload)
        if trial.rate_tps is not None:
            return msgspec.structs.replace(workload, rate_tps=trial.rate_tps)
        if self.experiment is None:
            return workload
        return apply_variant(workload, self.experiment.find_variant(trial.variants[0]))


def apply_variant(workload: PlannedWorkload, variant: Variant) -> PlannedWorkload:
    """Return the load of a workload under a variant."""
    clients = variant.clients or workload.clients
    return msgspec.structs.replace(
        workload,
        scripts=variant.scripts or workload.scripts,
        mode=variant.mode or workload.mode,
        clients=clients,
        threads=min(variant.threads or workload.threads, clients),
        load_hosts=variant.load_hosts or workload.load_hosts,
        endpoint=variant.endpoint or workload.endpoint,
    )


def count_planned_rounds(plan: Plan) -> dict[str, int]:
    """Count the rounds planned for each workload of paired trials; empty for blocks, whose slices a pilot may choose."""
    return {trial.workload: trial.round for trial in plan.trials if len(trial.variants) == 1}
