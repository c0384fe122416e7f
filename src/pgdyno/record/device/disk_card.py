"""Read and write disk cards: what a storage path was measured or declared to do, in one small versioned file.

A card holds each run of each job in the tools' own figures; `analyse/` computes estimates with intervals from them.
What is absent is None, never 0. A newer format is refused. A pgdyno home keeps the newest card of each path and scope,
so that commands find one without being given its file; a quick card never replaces a whole one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import hashlib
import math
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.damage import refusing_damage
from pgdyno.record.durable import write_durably
from pgdyno.record.machine.host_facts import KERNELS_MEMORY_RATIO
from pgdyno.record.machine.preflight import Unseen
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import DiskSpec, HostSpec

FORMAT = 1
CARDS = Path("pgdyno-disks")
"""Where cards go that the user does not place elsewhere."""
# A volume may have been changed, moved or filled since: a card that is a month old does not describe today's disk.
MAX_AGE = dt.timedelta(days=30)
_KEPT = "disks"
# A quick card has two queue depths, one I/O at a time and many; more depths are a sweep.
_QUICK_DEPTHS = 2


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of I/Os, from submission to completion."""

    count: int
    mean_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    p999_us: float
    max_us: float


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """Results of reading, or of writing, in one run."""

    iops: float
    bytes_per_s: float
    latency: Latencies


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """Rate of reads and writes together in one part of a run."""

    t_s: float
    """End of the part, counted from the start of the run."""
    iops: float


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job: DiskJob
    round: int
    """Number of the round, from 0."""
    began_at: dt.datetime
    runtime_s: float
    read: Direction | None
    write: Direction | None
    flush: Latencies | None
    """Latencies of the flushes alone, where the tool separates them from the writes before them."""
    spans: tuple[RunPart, ...]
    others_bytes_per_s: float | None
    """Bytes per second that other programs read and wrote on the device during the run; None if unknown."""
    cpu_ratio: float
    """Share of one CPU that the load generator used."""


class FlushTest(msgspec.Struct, frozen=True, kw_only=True):
    """One line of pg_test_fsync's output."""

    group: str
    """Heading above the line, such as `one 8kB write`."""
    name: str
    """Method by pg_test_fsync's name, such as `fdatasync`."""
    ops_per_s: float | None
    """None where the platform lacks the method or the file system refused it."""
    op_us: float | None
    remark: str | None = None
    is_default: bool = False


class ClockTest(msgspec.Struct, frozen=True, kw_only=True):
    """Result of pg_test_timing."""

    read_ns: float
    """Mean time of one clock reading."""
    counts: dict[str, int]
    """Number of readings by their duration, as the tool prints it and in the tool's unit."""
    unit: str


class CardMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the disk belongs to."""

    hostname: str
    cpu_model: str | None
    cpu_count: int
    memory_bytes: int
    kernel: str
    boot_id: str | None

    def is_same(self, other: CardMachine) -> bool:
        """Return whether both are one machine: one start of it, or one of the same name, CPU model and memory.

        A container gets a new name when it is made again. The number of CPUs may be a limit of who measured.
        """
        if self.boot_id is not None and self.boot_id == other.boot_id:
            return True
        is_alike = (self.hostname, self.cpu_model) == (other.hostname, other.cpu_model)
        return is_alike and math.isclose(self.memory_bytes, other.memory_bytes, rel_tol=KERNELS_MEMORY_RATIO)


class CardScope(enum.IntEnum):
    """Extent of a measurement; more is better."""

    FLUSHES = 1
    """Only flushes or the clock, which is all that can be measured without fio."""
    QUICK = 2
    WHOLE = 3
    """Queue depths up to the plateau."""


# End of the file's name in a home.
_SUFFIXES = {CardScope.FLUSHES: "+flushes", CardScope.QUICK: "+quick", CardScope.WHOLE: ""}


class DiskCard(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one storage path."""

    format: int = FORMAT
    pgdyno_version: str
    made_at: dt.datetime
    took_s: float | None = None
    name: str
    """Name in tables: the path, or the name of the declared layout."""
    path: str | None
    """None where the disk is only declared."""
    machine: CardMachine | None
    look: StorageStack | None
    """File system and devices, as observed."""
    instance: str | None = None
    """Declared cloud instance type, whose own limits apply."""
    declared: DiskSpec | None = None
    file_bytes: int | None
    runs: tuple[JobRun, ...]
    flush_tests: tuple[FlushTest, ...]
    clock: ClockTest | None
    tools: dict[str, str]
    """Versions by name of the tool."""
    unseen: tuple[Unseen, ...]
    """Figures that could not be measured, with reasons."""
    host: HostSpec | None = None
    """The declared machine; `declared` is one of its disks and `instance` its type."""
    neighbours: tuple[str, ...] = ()
    """Data directories of other servers that were running on the same device."""

    @property
    def is_emulated(self) -> bool:
        """True of a disk that an emulation has made."""
        return self.host is not None and self.host.emulate

    @property
    def scope(self) -> CardScope:
        """Extent of the card's measurements."""
        depths = {(run.job.pattern, run.job.depth) for run in self.runs}
        swept = {pattern for pattern, _ in depths if sum(1 for one, _ in depths if one is pattern) > _QUICK_DEPTHS}
        return CardScope.WHOLE if swept else CardScope.QUICK if self.runs else CardScope.FLUSHES

    @property
    def runtime_s(self) -> float | None:
        """Planned seconds of each run of fio; None without runs."""
        return max((run.job.runtime_s for run in self.runs), default=None)


class _Versioned(msgspec.Struct):
    format: int
    runs: msgspec.Raw


def name_card(*, made_at: dt.datetime, hostname: str, name: str) -> str:
    """Return the file name of a card: its time, host and path."""
    return f"{made_at:%Y%m%d-%H%M%S}-{_slug(hostname.partition('.')[0])}-{_name_path(name)}.json"


def write_card(card: DiskCard, path: Path) -> None:
    """Write a card atomically.

    Raises:
        StepFailedError: It cannot be written; the old file stays.
    """
    write_card_file(path, msgspec.json.format(msgspec.json.encode(card), indent=1))


def write_card_file(path: Path, content: bytes) -> None:
    """Write a file that belongs to a card, such as its HTML page, atomically.

    Raises:
        StepFailedError: It cannot be written; the old file stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content)
    except OSError as exc:
        hint = "name a folder with enough free space with --out"
        raise StepFailedError(f"cannot write {path}", detail=exc.strerror or str(exc), hint=hint) from exc


def read_card(path: Path, *, remedy: str = "measure the disk again with `pgdyno disk`") -> DiskCard:
    """Read a card.

    Args:
        path: File of the card.
        remedy: Hint of the error where the file is damaged.

    Raises:
        SpecError: The file is missing, damaged or no card, or a newer pgdyno wrote it.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SpecError(
            f"cannot read the disk card {path}",
            detail=exc.strerror or str(exc),
            hint="`pgdyno disk` writes a card and prints its path",
        ) from exc
    with refusing_damage(f"{path} is no disk card", hint=remedy):
        version = msgspec.json.decode(raw, type=_Versioned).format
    if version > FORMAT:
        raise SpecError(
            f"the disk card {path} has the newer format {version}",
            detail=f"this pgdyno reads up to {FORMAT}",
            hint="read it with the pgdyno that wrote it, or a later one",
        )
    with refusing_damage(f"the disk card {path} is damaged", hint=remedy):
        return msgspec.json.decode(raw, type=DiskCard)


def keep_card(card: DiskCard, home: Path) -> None:
    """Store a card in a pgdyno home, replacing an older one of the same path and scope.

    Raises:
        StepFailedError: It cannot be written; the older one stays.
    """
    write_card(card, home / _KEPT / f"{_name_path(card.path or card.name)}{_SUFFIXES[card.scope]}.json")


def find_kept_card(
    homes: Iterable[Path],
    look: StorageStack,
    machine: CardMachine,
    *,
    now: dt.datetime,
    max_age: dt.timedelta = MAX_AGE,
    is_direct_ignored: bool = False,
) -> tuple[DiskCard, Path] | None:
    """Find the best card that homes keep for the file system of a path: the widest scope, and the newest of those.

    Args:
        homes: Pgdyno homes to search; machines may share one, or have copies of it.
        look: The path as observed now.
        machine: The machine of the path.
        now: Current time, with its time zone.
        max_age: Older cards are ignored.
        is_direct_ignored: Whether the file system answers reads and writes with O_DIRECT from its own cache: a card that has any
            was made before pgdyno knew, and is of memory.

    Returns:
        The card and its file; None where no card fits.
    """
    found = []
    for path in (path for home in homes for path in (home / _KEPT).glob("*.json")):
        # Ignore damaged cards, and cards that a newer pgdyno wrote.
        with contextlib.suppress(SpecError):
            card = read_card(path)
            if is_direct_ignored and any(run.job.pattern is not Pattern.WAL for run in card.runs):
                continue
            if _is_of_same_file_system(card, look, machine) and dt.timedelta(0) <= now - card.made_at <= max_age:
                found.append((card, path))
    return max(found, key=lambda one: (one[0].scope, one[0].made_at), default=None)


def _is_of_same_file_system(card: DiskCard, look: StorageStack, machine: CardMachine) -> bool:
    if card.look is None or card.machine is None or not (card.runs or card.flush_tests):
        return False
    then, now = card.look.facts, look.facts
    is_same = (then.device, then.filesystem, then.lasting_size_bytes) == (
        now.device,
        now.filesystem,
        now.lasting_size_bytes,
    )
    return is_same and card.machine.is_same(machine)


def _name_path(path: str) -> str:
    """Return a path as a part of a file name: no other path has the same."""
    slug = _slug(path)
    if path == f"/{slug.replace('-', '/')}":
        return slug
    # The slug of no path contains a plus sign.
    return f"{slug}+{hashlib.sha256(path.encode(errors='surrogateescape')).hexdigest()[:8]}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "root"


def add_declared_disk(
    card: DiskCard, host: HostSpec | None, place: int, *, data: StorageStack | None = None
) -> DiskCard:
    """Return a card with what a host file declares of its disk.

    Args:
        card: The card.
        host: The declared machine; None: nothing is declared.
        place: 0 for the disk of the data, else that of pg_wal.
        data: The disk of the data as observed, for a card of pg_wal's.
    """
    if host is None:
        return card
    declared = find_declared_disk(host, place, look=card.look, data=data)
    return msgspec.structs.replace(card, host=host, declared=declared, instance=host.instance)


def find_declared_disk(
    host: HostSpec, place: int, *, look: StorageStack | None, data: StorageStack | None
) -> DiskSpec | None:
    """Return what a host file declares of the disk of the data (place 0), or of pg_wal's, which is the data's unless it is seen apart.

    Args:
        host: The declared machine.
        place: 0 for the disk of the data, else that of pg_wal.
        look: The disk as observed.
        data: The disk of the data as observed.
    """
    if not place or host.wal_disk is not None:
        return host.wal_disk if place else host.disk
    is_apart = look is not None and data is not None and look.is_apart_from(data)
    return None if is_apart else host.disk
