"""A disk card: what a storage path was seen to do, or is declared to do, in one small versioned file.

It holds each run of each job as it was, in the tools' own figures; estimates with intervals are `analyse/`'s to make.
Absent is None, never 0. A newer format is refused. A pgdyno home keeps the newest card of each path and depth of looking,
so that who needs one finds it without being told: a quick card never takes a whole one's place.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.disk import DiskJob
from pgdyno.record.durable import write_durably
from pgdyno.record.machine.preflight import Unseen
from pgdyno.record.machine.tunables import DiskLook
from pgdyno.spec.host import DiskSpec, HostSpec

FORMAT = 1
# A volume may be changed, moved or filled meanwhile; what was so a month ago is no measurement of today.
MAX_AGE = dt.timedelta(days=30)
_KEPT = "disks"
# Of one I/O at a time and of many: more depths are a sweep.
_QUICK_DEPTHS = 2


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """How long I/Os took, from submission to completion."""

    count: int
    mean_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    p999_us: float
    max_us: float


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """What was read or written in one run."""

    iops: float
    bytes_per_s: float
    latency: Latencies


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """I/Os of both directions in one part of a run."""

    t_s: float
    """Its end, since the run's start."""
    iops: float


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job: DiskJob
    round: int
    """From 0."""
    began_at: dt.datetime
    runtime_s: float
    read: Direction | None
    write: Direction | None
    flush: Latencies | None
    """Of the flushes alone, where the tool tells them apart from the writes before them."""
    spans: tuple[RunPart, ...]
    others_bytes_per_s: float | None
    """What the device read and wrote beside this run; None where it cannot be told."""
    cpu_ratio: float
    """Of one CPU, that the load generator used."""


class FlushTest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of pg_test_fsync."""

    group: str
    """Its heading, such as `one 8kB write`."""
    name: str
    """As pg_test_fsync calls it, such as `fdatasync`."""
    ops_per_s: float | None
    """None where this platform has no such method, or the file system refused it."""
    op_us: float | None
    remark: str | None = None
    is_default: bool = False


class ClockTest(msgspec.Struct, frozen=True, kw_only=True):
    """What pg_test_timing says."""

    read_ns: float
    """Mean of one reading."""
    counts: dict[str, int]
    """Readings by their time as the tool prints it, in the tool's own unit."""
    unit: str


class CardMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Whose disk it is."""

    hostname: str
    cpu_model: str | None
    cpu_count: int
    memory_bytes: int
    kernel: str
    boot_id: str | None


class CardScope(enum.IntEnum):
    """How much of a disk was measured; more is better."""

    FLUSHES = 1
    """Flushes alone, or the clock: all that there is without fio."""
    QUICK = 2
    WHOLE = 3
    """With queue depths up to the plateau."""


# Of the file that a home keeps it in: what the name of no path can hold.
_SUFFIXES = {CardScope.FLUSHES: "+flushes", CardScope.QUICK: "+quick", CardScope.WHOLE: ""}


class DiskCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one storage path."""

    format: int = FORMAT
    pgdyno_version: str
    made_at: dt.datetime
    took_s: float | None = None
    name: str
    """What tables call it: the path, or the declared layout's name."""
    path: str | None
    """None for one that is only declared."""
    machine: CardMachine | None
    look: DiskLook | None
    """File system and devices, as seen."""
    instance: str | None = None
    """Declared, of a cloud, whose own limits hold."""
    declared: DiskSpec | None = None
    file_bytes: int | None
    runs: tuple[JobRun, ...]
    flush_tests: tuple[FlushTest, ...]
    clock: ClockTest | None
    tools: dict[str, str]
    """Version by name."""
    unseen: tuple[Unseen, ...]
    """What could not be measured, with the reason."""
    host: HostSpec | None = None
    """The declared machine, of which `declared` is one disk and `instance` the kind."""
    neighbours: tuple[str, ...] = ()
    """Data directories of servers that ran on the same device."""

    @property
    def scope(self) -> CardScope:
        """How much of it was measured."""
        depths = {(run.job.pattern, run.job.depth) for run in self.runs}
        swept = {pattern for pattern, _ in depths if sum(1 for one, _ in depths if one is pattern) > _QUICK_DEPTHS}
        return CardScope.WHOLE if swept else CardScope.QUICK if self.runs else CardScope.FLUSHES


class _Versioned(msgspec.Struct):
    format: int
    runs: msgspec.Raw


def name_card(*, made_at: dt.datetime, hostname: str, name: str) -> str:
    """What a card's file is called: when, whose and of which path."""
    parts = (f"{made_at:%Y%m%d-%H%M%S}", hostname.partition(".")[0], name)
    return f"{'-'.join(filter(None, map(_slug, parts)))}.json"


def write_card(card: DiskCard, path: Path) -> None:
    """Write a card, whole or not at all.

    Raises:
        StepFailedError: It cannot be written; what was there stays.
    """
    write_beside(path, msgspec.json.format(msgspec.json.encode(card), indent=1))


def write_beside(path: Path, content: bytes) -> None:
    """Write a file of a card's, such as its page, whole or not at all.

    Raises:
        StepFailedError: It cannot be written; what was there stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content)
    except OSError as exc:
        hint = "name a place that has room with --out"
        raise StepFailedError(f"cannot write {path}", detail=exc.strerror or str(exc), hint=hint) from exc


def read_card(path: Path, *, remedy: str = "measure anew: `pgdyno disk`") -> DiskCard:
    """Read a card.

    Args:
        path: Of its file.
        remedy: What to do where it is damaged.

    Raises:
        SpecError: There is none, it is something else or damaged, or a newer pgdyno wrote it.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SpecError(
            f"cannot read the disk card {path}",
            detail=exc.strerror or str(exc),
            hint="`pgdyno disk` makes one, and says where it lies",
        ) from exc
    try:
        newer = msgspec.json.decode(raw, type=_Versioned).format
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path} is no disk card", detail=str(exc), hint=remedy) from exc
    if newer > FORMAT:
        raise SpecError(
            f"the disk card {path} has the newer format {newer}",
            detail=f"this pgdyno reads up to {FORMAT}",
            hint="read it with the pgdyno that wrote it, or a later one",
        )
    try:
        return msgspec.json.decode(raw, type=DiskCard)
    except msgspec.DecodeError as exc:
        raise SpecError(f"the disk card {path} is damaged", detail=str(exc), hint=remedy) from exc


def keep_card(card: DiskCard, home: Path) -> None:
    """Keep a card in a pgdyno home, in place of an older one of the same path and scope.

    Raises:
        StepFailedError: It cannot be written; the older one stays.
    """
    write_card(card, home / _KEPT / f"{_slug(card.path or card.name)}{_SUFFIXES[card.scope]}.json")


def find_kept_card(
    homes: Iterable[Path], look: DiskLook, *, now: dt.datetime, max_age: dt.timedelta = MAX_AGE
) -> tuple[DiskCard, Path] | None:
    """The card that homes keep of the file system that a path lies on, and where it is: of those that measured most the newest.

    Args:
        homes: Of pgdyno.
        look: The path as it is seen now.
        now: Aware of its time zone.
        max_age: Older cards are left alone.
    """
    found = []
    for path in (path for home in homes for path in (home / _KEPT).glob("*.json")):
        # A card that a newer pgdyno wrote, or that is damaged, is none to lean on.
        with contextlib.suppress(SpecError):
            card = read_card(path)
            if _is_of(card, look) and dt.timedelta(0) <= now - card.made_at <= max_age:
                found.append((card, path))
    return max(found, key=lambda one: (one[0].scope, one[0].made_at), default=None)


def _is_of(card: DiskCard, look: DiskLook) -> bool:
    if card.look is None or not (card.runs or card.flush_tests):
        return False
    then, now = card.look.facts, look.facts
    return (then.device, then.filesystem, then.size_bytes) == (now.device, now.filesystem, now.size_bytes)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "root"


def declare(card: DiskCard, host: HostSpec | None, place: int) -> DiskCard:
    """A card with what a host declares of its disk: the data's for the first of several, the WAL's for the others."""
    if host is None:
        return card
    disk = (host.wal_disk or host.disk) if place else host.disk
    return msgspec.structs.replace(card, host=host, declared=disk, instance=host.instance)
