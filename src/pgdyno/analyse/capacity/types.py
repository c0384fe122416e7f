"""Define what a machine can carry of a workload and what would limit it next: the values that the other modules here compute.

A bound is what one resource alone allows: its capacity over the demand of a transaction. No load exceeds the lowest
bound, but a load need not come near it. Absent values are None, with a reason.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.analyse.estimate import Estimate

# Our reasoning: clocks and counters from several sources never agree to the last percent.
_PASSED_RATIO = 1.05
# A card that was measured beside other load has wide intervals; a limit exceeded by this much is no limit.
_FAR_PASSED_RATIO = 1.25


class BoundKind(enum.Enum):
    """The kinds of bounds, by resource."""

    CPU = "CPUs"
    LOAD_GENERATOR = "load generator"
    """Pgbench's threads, each of which can use at most one CPU."""
    FLUSHES = "WAL flushes"
    """At the present number of clients: more clients share each flush."""
    WAL = "WAL written"
    READS = "random reads"
    READ_BYTES = "bytes read"
    WRITES = "random writes"
    WRITTEN_BYTES = "bytes written"
    INSTANCE_IOPS = "I/Os through the instance"
    INSTANCE_BYTES = "bytes through the instance"

    @property
    def noun(self) -> str:
        """The resource in a sentence: `the limit of …`."""
        return {BoundKind.CPU: "the CPUs", BoundKind.LOAD_GENERATOR: "pgbench"}.get(self, self.value)

    @property
    def is_of_disk(self) -> bool:
        """True if another disk changes the bound; what an instance lets through stays."""
        return self not in {BoundKind.CPU, BoundKind.LOAD_GENERATOR} and not self.is_of_instance

    @property
    def is_of_instance(self) -> bool:
        """True if the instance sets the bound for all of its network volumes."""
        return self in {BoundKind.INSTANCE_IOPS, BoundKind.INSTANCE_BYTES}


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The TPS that one resource alone allows."""

    kind: BoundKind
    tps: Estimate
    demand: Estimate
    """Demand of a transaction, over trials."""
    limit: Estimate
    """Capacity per second, in the demand's unit."""
    used: Estimate
    """Share of the limit that the trials used; above 1, they used more than the known limit."""
    how: str
    """Description of the limit, in a clause; also which trials show its use where that are not watched ones."""
    others_ratio: float | None = 0.0
    """Largest use by others in a trial, 0 if it does not disturb the load; None if it is unknown."""
    idle_ratio: float = 0.0
    """Idle share of the CPUs: a transaction takes less CPU time as they fill, and the upper end allows for it."""

    @property
    def is_refuted(self) -> bool:
        """True if the trials certainly exceeded the limit, or exceeded it by far: then it is no limit."""
        value = self.used.value or 0.0
        return (value if self.used.low is None else self.used.low) > _PASSED_RATIO or value > _FAR_PASSED_RATIO

    @property
    def is_firm(self) -> bool:
        """True if it holds for any number of clients: unlike flushes, which clients share, and pgbench, which is no part of the server."""
        return self.kind not in {BoundKind.FLUSHES, BoundKind.LOAD_GENERATOR} and not self.is_refuted


class BoundState(enum.Enum):
    """The state of a workload relative to the lowest of its bounds."""

    AT_BOUND = "at its bound"
    """It uses nearly all of that resource."""
    HELD = "held below its bounds"
    """More clients do not help, and no resource is used up: its limit has no bound here."""
    BELOW = "below its bounds"
    """It was not tried whether more clients would reach the bound."""
    UNKNOWN = "unknown"
    """There is no bound, or the load has exceeded all of them."""


class ClientAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The best number of active sessions: pgbench's clients, or a pool's size."""

    clients: int | None
    """The knee of a sweep, which has 90 % of the highest TPS; None if it is not known that precisely."""
    low: int | None
    high: int | None
    is_hint: bool
    """True if it was computed from one number of clients; otherwise several were tried."""
    how: str
    reason: str | None = None
    """Why a part of it is absent."""


class NextLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of a workload once its present limit is removed."""

    removed: str
    """The removed limit, in a word or a clause."""
    binds: BoundKind
    tps: Estimate
    """Upper bound of TPS at the next limit."""
    gain: Estimate
    """Upper bound of the gain, as a ratio minus one."""
    gain_at_clients: Estimate
    """Upper bound of the gain with the same clients, by the time that transactions spend on what is removed; likewise."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """The range of the highest TPS on another machine, computed and not measured.

    The low end is the measured TPS; the high end is what the bounds then allow. Both are None with a reason if unknown.
    """

    change: str
    """The change, such as `twice the CPUs`."""
    low_tps: float | None
    high_tps: float | None
    binds: BoundKind | None
    """The bound at the high end."""
    how: str
    reason: str | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine can carry of a workload, from one number of clients or the best of several."""

    workload: str
    """The name of its analysis; for a sweep over clients, the workload's own name."""
    clients: int
    """Number of clients at which the bounds were measured."""
    tps: Estimate
    """Measured TPS of the run: at `clients`, or at the requested number of clients."""
    peak: Estimate
    """Highest TPS of the sweep over clients; None with a reason if there was none, or if TPS still grew."""
    ceiling: Estimate
    """Upper limit of TPS for any number of clients: the peak if it is known, otherwise the lowest bound."""
    nearness: Estimate
    """Ratio of `tps` to the ceiling."""
    standing: BoundState
    bounds: tuple[Bound, ...]
    """The bounds, the lowest first."""
    candidates: tuple[BoundKind, ...]
    """Kinds that may be the lowest bound, by their intervals; all kinds without intervals are included."""
    next: NextLimit | None
    """The next limit; None if it is unknown, with the reason in `absent` under `next`."""
    advice: ClientAdvice
    projections: tuple[Projection, ...]
    absent: dict[str, str]
    """Why a bound is absent, by its kind's name; also for other absent fields."""

    def find(self, kind: BoundKind) -> Bound | None:
        """Return the bound of a kind; None without one."""
        return next((bound for bound in self.bounds if bound.kind is kind), None)

    @property
    def others_ratio(self) -> float:
        """The largest share of the CPUs that other programs took in a trial; 0 if it does not disturb the load, or is unknown."""
        return max((bound.others_ratio or 0.0 for bound in self.bounds), default=0.0)

    @property
    def binding(self) -> Bound | None:
        """The lowest bound at these clients."""
        return next((bound for bound in self.bounds if not bound.is_refuted), None)

    @property
    def lowest(self) -> Bound | None:
        """The lowest bound for any number of clients, and with pgbench on another machine."""
        return next((bound for bound in self.bounds if bound.is_firm), None)
