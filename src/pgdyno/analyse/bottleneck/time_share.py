"""Where the time of a transaction goes, and what of it limits the load: values only, which `time_model` and `bottleneck` reckon.

Absent is None, with the reason. A share is of the clients' time: all of a trial's make 1.
"""

from __future__ import annotations

import enum

import msgspec


class Resource(enum.Enum):
    """What a client waits for, or what limits a load."""

    CPU = "CPU"
    WAL_FLUSH = "WAL flush"
    """Until the WAL of a commit is durable."""
    WAL_LOCK = "WAL insertion and write locks"
    DATA_READ = "data reads"
    DATA_WRITE = "data writes and checkpoints"
    TEMP_FILE = "temporary files"
    """Of sorts and hashes that are larger than work_mem."""
    STANDBY = "synchronous standby"
    """Until the WAL of a commit is where synchronous_standby_names wants it."""
    LOCK = "row and lock contention"
    CLIENT = "client and network"
    LOAD_GENERATOR = "load generator"
    """pgbench itself has no time left."""
    UNKNOWN = "unknown"


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a transaction's mean time that goes to one resource, with its 95 % interval of sampling."""

    resource: Resource
    ms: float
    """Of a transaction."""
    ratio: float
    low_ratio: float | None
    high_ratio: float | None
    how: str
    """What it was reckoned from, in a clause."""


class TransactionTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean time of a trial's transaction by resource, largest first."""

    transaction_ms: float
    shares: tuple[TimeShare, ...]
    observed_count: int
    """Looks at the clients' backends that the shares rest on."""
    running_ms: float | None = None
    """CPU time of the server in a transaction, as the kernel counted it; None where it was not seen."""
    queueing_ratio: float | None = None
    """Of the time as running backends: waiting for a CPU rather than having one; None where that was not seen."""
    generator_ratio: float | None = None
    """Of its time, how long pgbench's busiest thread had a CPU or waited for one; None where that was not seen."""
    absent: dict[str, str] = {}
    """By field or resource, why it is not known."""

    def find(self, resource: Resource) -> TimeShare | None:
        """The share of a resource."""
        return next((share for share in self.shares if share.resource is resource), None)


class Certainty(enum.Enum):
    """How sure a verdict on the bottleneck is."""

    PROVEN = "proven"
    """An intervention showed it."""
    STRONG = "strong"
    """Independent sources agree, and no rival fits."""
    LIKELY = "likely"
    """It fits best, and a rival fits, too."""
    UNKNOWN = "unknown"


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a load at its number of clients."""

    resource: Resource
    certainty: Certainty
    evidence: tuple[str, ...]
    """Sentences with figures, strongest first."""
    symptoms: tuple[str, ...] = ()
    """What is seen because of it, and might be taken for a cause."""
    rivals: tuple[tuple[Resource, str], ...] = ()
    """Other resources that could be it, with what speaks against each."""
    share: TimeShare | None = None
    absent: tuple[str, ...] = ()
    """What could not be judged, and why."""
    trial: int | None = None
    """Number of the trial that all figures are of; None where the trials do not agree."""
