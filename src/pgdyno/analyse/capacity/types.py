"""What a machine can carry of a workload, and what would hold it next: values only, which the other `capacity_*` reckon.

A bound is what one resource alone allows: what there is of it over what a transaction takes. No load passes the lowest
of them; that a load comes near it, nobody promises. Absent is None, with the reason.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.analyse.estimate import Estimate

# Our reasoning: clocks and counters of several sources never agree to the last per cent.
_PASSED_RATIO = 1.05
# A card that was made beside other load has wide intervals; what is by so much too little is no limit to speak of.
_FAR_PASSED_RATIO = 1.25


class BoundKind(enum.Enum):
    """What a bound is of."""

    CPU = "CPUs"
    LOAD_GENERATOR = "load generator"
    """pgbench's threads, each of which one CPU can serve at most."""
    FLUSHES = "WAL flushes"
    """At the clients that there were: more of them share each flush."""
    WAL = "WAL written"
    READS = "random reads"
    READ_BYTES = "bytes read"
    WRITES = "random writes"
    WRITTEN_BYTES = "bytes written"
    INSTANCE_IOPS = "I/Os through the instance"
    INSTANCE_BYTES = "bytes through the instance"

    @property
    def noun(self) -> str:
        """As it stands in a sentence: `the limit of …`."""
        return {BoundKind.CPU: "the CPUs", BoundKind.LOAD_GENERATOR: "pgbench"}.get(self, self.value)

    @property
    def is_of_disk(self) -> bool:
        """Whether another disk moves it."""
        return self not in {BoundKind.CPU, BoundKind.LOAD_GENERATOR}


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The TPS that one resource alone allows."""

    kind: BoundKind
    tps: Estimate
    demand: Estimate
    """Of a transaction, over trials."""
    limit: Estimate
    """A second of it, in the demand's unit."""
    used: Estimate
    """Share of the limit that the trials took; above 1 they took more than was known to be there."""
    how: str
    """What the limit is, in a clause."""
    others_ratio: float | None = 0.0
    """The most of it that others used in a trial, where that is more than works for the load itself; None where nobody knows."""
    idle_ratio: float = 0.0
    """The share of the CPUs that was idle: a transaction takes less of them as they fill, and the high end allows for it."""

    @property
    def is_refuted(self) -> bool:
        """Whether the trials surely took more than the limit, or by far more however wide its interval: then it is none."""
        value = self.used.value or 0.0
        return (value if self.used.low is None else self.used.low) > _PASSED_RATIO or value > _FAR_PASSED_RATIO

    @property
    def is_firm(self) -> bool:
        """Whether it holds with any number of clients: more of them share flushes, and pgbench is no part of the machine."""
        return self.kind not in {BoundKind.FLUSHES, BoundKind.LOAD_GENERATOR} and not self.is_refuted


class BoundState(enum.Enum):
    """How a workload stands to the lowest of its bounds."""

    AT_BOUND = "at its bound"
    """It takes nearly all of that resource."""
    HELD = "held below its bounds"
    """More clients do not help, and no resource is used up: what holds it has no bound here."""
    BELOW = "below its bounds"
    """Nobody tried whether more clients would take it there."""
    UNKNOWN = "unknown"
    """There is no bound, or none that a load has not passed."""


class ClientAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions at work are best: pgbench's clients, or a pool's size."""

    clients: int | None
    """The smallest number that gives what can be had; None where it is not known that well."""
    low: int | None
    high: int | None
    is_hint: bool
    """Whether it was worked out of one number of clients; else more than one was tried."""
    how: str
    reason: str | None = None
    """Why something of it is absent."""


class NextLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a workload when what holds it now is gone."""

    removed: str
    """In a word or a clause."""
    binds: BoundKind
    tps: Estimate
    """What it allows: no more than that, and perhaps less."""
    gain: Estimate
    """Of what holds it now, at most; a ratio, less one."""
    gain_at_clients: Estimate
    """What as many clients gain at most, by the time that their transactions spend on what is removed; likewise."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Where the most TPS would lie on another machine: worked out and not measured.

    The low end is what was measured already; the high end what the bounds then allow. None with the reason.
    """

    change: str
    """Such as `twice the CPUs`."""
    low_tps: float | None
    high_tps: float | None
    binds: BoundKind | None
    """What the high end comes from."""
    how: str
    reason: str | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine can carry of a workload, from one number of clients or the best of several."""

    workload: str
    """As its analysis is called; of a sweep over clients the workload's own name."""
    clients: int
    """At which the bounds were seen."""
    tps: Estimate
    """What it had in the run: there, or at the clients that were asked for."""
    peak: Estimate
    """The most TPS by the sweep over clients; None with the reason where none was made or it still grew."""
    ceiling: Estimate
    """What it can come to at most with any number of clients: the peak where that is known, else the lowest bound."""
    nearness: Estimate
    """Of `tps` to the ceiling, a ratio."""
    standing: BoundState
    bounds: tuple[Bound, ...]
    """The lowest first."""
    candidates: tuple[BoundKind, ...]
    """Those that may be the lowest, as far as their intervals tell; all of them where intervals lack."""
    next: NextLimit | None
    """None, with the reason in `absent` under `next`, where nobody knows."""
    advice: ClientAdvice
    projections: tuple[Projection, ...]
    absent: dict[str, str]
    """Why there is no bound of a kind, by its name; and of what else lacks."""

    def find(self, kind: BoundKind) -> Bound | None:
        """The bound of that kind."""
        return next((bound for bound in self.bounds if bound.kind is kind), None)

    @property
    def binding(self) -> Bound | None:
        """What binds first at these clients."""
        return next((bound for bound in self.bounds if not bound.is_refuted), None)

    @property
    def lowest(self) -> Bound | None:
        """What binds first with any number of clients, and with pgbench elsewhere."""
        return next((bound for bound in self.bounds if bound.is_firm), None)
