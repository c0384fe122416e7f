"""Define the shares of a transaction's time, by resource, and the bottleneck of a load.

`model` estimates the shares, `analyse/bottleneck` the bottleneck. Absent values are None, with a reason. A share is of the clients' time: the shares of a trial add up to 1.
"""

from __future__ import annotations

import enum

import msgspec

ONE_CPU = "the speed of one CPU"
"""Part of the CPUs that limits where others are idle."""
WRITING_WAL = "writing WAL"
"""Part of WAL flushes that limits where no commit waits for one."""


class Resource(enum.Enum):
    """The resources that a client may wait for, or that may limit a load."""

    CPU = "CPU"
    WAL_FLUSH = "WAL flush"
    """Waiting until the WAL of a commit is durable."""
    WAL_LOCK = "WAL insertion and write locks"
    DATA_READ = "data reads"
    DATA_WRITE = "data writes and checkpoints"
    TEMP_FILE = "temporary files"
    """Sorts and hashes that are larger than work_mem."""
    STANDBY = "synchronous standby"
    """Waiting until the WAL of a commit is where synchronous_standby_names requires it."""
    LOCK = "row and lock contention"
    LIGHTWEIGHT_LOCK = "lightweight locks"
    """Locks on the server's own structures, such as pages, the table of locks, or the list of transactions; not on rows."""
    POOL = "connections of the pool"
    """Waiting at a pooler until a server connection is free."""
    POOLER = "pooler"
    """The pooler's own thread, between client and server."""
    NETWORK = "network"
    """The way to a server of the user's and back, as far as empty statements show it."""
    CLIENT = "client and network"
    LOAD_GENERATOR = "load generator"
    """Pgbench itself has no time left."""
    UNKNOWN = "unknown"


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a transaction's mean time that goes to one resource, with its 95 % interval from sampling."""

    resource: Resource
    ms: float
    """Milliseconds per transaction."""
    ratio: float
    low_ratio: float | None
    high_ratio: float | None
    how: str
    """How it was estimated, in a clause."""


class TransactionTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean time of a trial's transactions by resource, largest first."""

    transaction_ms: float
    shares: tuple[TimeShare, ...]
    observed_count: int
    """Number of samples of the clients' backends that the shares rest on."""
    running_ms: float | None = None
    """CPU time of the server per transaction, as the kernel counted it; None if it was not counted."""
    queueing_ratio: float | None = None
    """Share of the runnable time of backends that they waited for a CPU; None if it was not counted."""
    generator_ratio: float | None = None
    """Share of its time that pgbench's busiest thread had a CPU or waited for one; None if it was not counted."""
    pooler_ratio: float | None = None
    """Share of its time that the pooler's thread had a CPU, or waited for one longer than backends do; None if it was not counted."""
    absent: dict[str, str] = {}
    """Why a value is absent, by field or resource."""

    @property
    def unknown(self) -> dict[str, str]:
        """Why values are absent, by what they are in words."""
        return {"CPU time of backends" if what == "running_ms" else what: why for what, why in self.absent.items()}

    def find(self, resource: Resource) -> TimeShare | None:
        """Return the share of a resource; None if it has none."""
        return next((share for share in self.shares if share.resource is resource), None)


class Certainty(enum.Enum):
    """How certain a verdict on the bottleneck is."""

    PROVEN = "proven"
    """An experiment showed it."""
    STRONG = "strong"
    """Independent sources agree, and no other resource fits."""
    LIKELY = "likely"
    """It fits best, but another resource fits, too."""
    UNKNOWN = "unknown"


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """The resource that limits a load at its number of clients."""

    resource: Resource
    certainty: Certainty
    evidence: tuple[str, ...]
    """Statements with figures, strongest first."""
    part: str = ""
    """What of the resource takes the time, such as `the flush of standby1`; empty where that is not told apart."""
    symptoms: tuple[str, ...] = ()
    """Effects of the bottleneck that could be mistaken for its cause."""
    rivals: tuple[tuple[Resource, str], ...] = ()
    """Other resources that could be the bottleneck, with the evidence against each."""
    share: TimeShare | None = None
    absent: tuple[str, ...] = ()
    """What could not be judged, and why."""
    trial: int | None = None
    """Number of the trial that all figures come from; None if the trials disagree."""

    @property
    def is_of_one_cpu(self) -> bool:
        """True if CPUs are idle, so that their speed limits the load and not their number."""
        return self.resource is Resource.CPU and self.part == ONE_CPU
