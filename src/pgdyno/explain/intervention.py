"""Choose the one experiment that would show what limits a load: change what the limit depends on, and see if TPS follows.

Each experiment varies one thing against the load as it was, so that its verdict is about that resource; if other limits
would give the same result, it says so. A variant that gives up durability is labelled a what-if and never becomes
advice. If nothing that can be varied here would show the limit, there is no experiment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.transaction_time.shares import Bottleneck, Resource
from pgdyno.analyse.wal_room import find_wal_room
from pgdyno.explain.commands import Command, MeasuredLoad, is_confirmable, write_command, write_comparison
from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.plan.standbys import SYNCHRONOUS_COMMIT, SYNCHRONOUS_NAMES, waits_for_standby, with_synchronous_names
from pgdyno.record.types import StudyRecord
from pgdyno.spec.pooler import PRIMARY
from pgdyno.spec.study import BUILTIN_SCRIPTS
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.spec.variant import LOAD_HOSTS, OF_LOAD, read_number, show_value
from pgdyno.units import PAGE_BYTES

_MB = 1024**2
# Share of the machine's memory: with more, the kernel's cache and the sessions have too little. Source: PostgreSQL 18
# manual, section 19.4.1, shared_buffers.
_MAX_MEMORY_RATIO = 0.4
# Least factor by which a setting must grow to make a difference that a short experiment can show.
_MIN_GROWTH = 1.25
_MORE_WAL = 8
_LEAST_MORE_WAL_MB = 4096.0
_MORE_MEMORY = 16
_ROOMIER = 4


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment of two variants: the load as it was, and one thing changed."""

    varied: str
    """A setting, or one of `clients`, `threads`, `mode`, `scale`, `load_hosts`."""
    levels: tuple[SettingValue, SettingValue]
    """The value as it was, and the changed value."""
    expects: VerdictKind
    """Verdict on TPS under the second level, if the bottleneck is right."""
    why: str
    """Why that would show it, in a sentence."""
    is_specific: bool = True
    """True if other limits would give another result; otherwise it can only support the bottleneck."""
    is_what_if: bool = False
    """True if the second level gives up durability."""
    command: str = ""
    """The command line; empty where no options express it, such as for a load of several scripts, and for a given server that
    `explain --confirm` reaches."""

    @property
    def variants(self) -> tuple[dict[str, SettingValue], dict[str, SettingValue]]:
        """The settings of each variant, as `spec.variant.make_variant` takes them."""
        return {self.varied: self.levels[0]}, {self.varied: self.levels[1]}


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    """The server and data that a load ran on."""

    measured: MeasuredLoad
    memory_bytes: int
    """Of the server's machine."""
    shown: Mapping[str, SettingValue]
    """Of a given server: its own settings."""

    @property
    def record(self) -> StudyRecord:
        return self.measured.record

    @property
    def load(self) -> PlannedWorkload:
        return self.measured.load

    @property
    def scale(self) -> int:
        return self.measured.scale

    @property
    def settings(self) -> Mapping[str, SettingValue]:
        return {**self.shown, **self.measured.server.settings}

    def number(self, name: str) -> float:
        """Return a setting's value in its own unit."""
        return read_number(self.settings, name, major=self.record.server.major)

    def find_room_for_wal(self) -> float:
        """Return how many bytes of WAL the disk has room for; infinite where it is not known."""
        variant = self.measured.variant
        there = self.record.at(() if variant is None else (variant.name,))
        disk = there.wal_disk or (None if there.host is None else there.host.data_disk)
        if disk is None or not disk.is_known:
            return math.inf
        return find_wal_room(disk.free_bytes, is_shared=there.wal_disk is None)


def choose_intervention(
    bottleneck: Bottleneck,
    record: StudyRecord,
    *,
    load: PlannedWorkload,
    variant: Variant | None = None,
    shown: Mapping[str, SettingValue] | None = None,
) -> Intervention | None:
    """Choose an experiment that would confirm a bottleneck; None if there is none.

    Args:
        bottleneck: The bottleneck of a load.
        record: The study's record.
        load: The load.
        variant: The variant that it ran under, in a comparison.
        shown: What the server showed of its settings, where they are not the study's own.
    """
    base = _Base(
        measured=MeasuredLoad(record=record, load=load, variant=variant),
        memory_bytes=0 if record.host is None else record.host.usable_memory_bytes,
        shown={} if record.given is None else (shown or {}),
    )
    choose = (_CHOICES if record.given is None else _GIVEN_CHOICES).get(bottleneck.resource)
    if bottleneck.is_of_one_cpu:
        choose = _more_clients
    # What is varied is one value for all clients, and parts have their own.
    chosen = None if choose is None or load.rate_tps is not None or load.parts else choose(base)
    if chosen is None or (record.given is not None and is_confirmable(record)):
        return chosen
    return msgspec.structs.replace(chosen, command=_write_command(chosen, base.measured))


def _other_work(base: _Base) -> Intervention | None:
    pooler = base.record.plan.find_pooler_of(base.load)
    if pooler is not None and pooler.loses_statements:
        return None
    if base.load.mode is QueryMode.PREPARED:
        return Intervention(
            varied="mode",
            levels=(QueryMode.PREPARED.value, QueryMode.SIMPLE.value),
            expects=VerdictKind.SLOWER,
            why="Parsing and planning each statement again takes CPU time and nothing else: where CPUs do not limit, it costs little.",
            is_specific=False,
        )
    return Intervention(
        varied="mode",
        levels=(base.load.mode.value, QueryMode.PREPARED.value),
        expects=VerdictKind.FASTER,
        why="Prepared statements spare the CPUs parsing and planning, and nothing else.",
        is_specific=False,
    )


def _fewer_clients(base: _Base) -> Intervention | None:
    clients = base.load.clients
    if clients < _ROOMIER:
        return None
    return Intervention(
        varied="clients",
        levels=(clients, clients // 2),
        expects=VerdictKind.EQUIVALENT,
        why="Where clients only queue for what is full, half of them do as much.",
        is_specific=False,
    )


def _more_clients(base: _Base) -> Intervention:
    return Intervention(
        varied="clients",
        levels=(base.load.clients, 2 * base.load.clients),
        expects=VerdictKind.FASTER,
        why="Where nothing in the server is full, more clients do more.",
        is_specific=False,
    )


def _no_flushes(base: _Base) -> Intervention | None:
    now = show_value(base.settings.get(SYNCHRONOUS_COMMIT, "on"))
    if now == "off" or not base.number("fsync"):
        return None
    # The study of a record lacks the standbys' name where pgdyno filled it in.
    filled = {**with_synchronous_names(base.record.study).server.settings, **base.settings}
    has_standby = waits_for_standby(filled.get(SYNCHRONOUS_NAMES, ""), now)
    return Intervention(
        varied=SYNCHRONOUS_COMMIT,
        levels=(now, "off"),
        expects=VerdictKind.FASTER,
        why=f"Commits that wait for no flush{' and no standby' * has_standby} show what {'both' if has_standby else 'flushes'} take;"
        " a crash loses the last of them.",
        is_specific=not has_standby,
        is_what_if=True,
    )


def _no_standby(base: _Base) -> Intervention | None:
    now = show_value(base.settings.get(SYNCHRONOUS_COMMIT, "on"))
    if now in {"off", "local"}:
        return None
    return Intervention(
        varied=SYNCHRONOUS_COMMIT,
        levels=(now, "local"),
        expects=VerdictKind.FASTER,
        why="Commits that wait for no standby show what it takes; the loss of the primary then loses what no standby has yet.",
        is_what_if=True,
    )


def _no_pooler(base: _Base) -> Intervention | None:
    if base.load.endpoint == PRIMARY:
        return None
    return Intervention(
        varied="endpoint",
        levels=(base.load.endpoint, PRIMARY),
        expects=VerdictKind.FASTER,
        why="Clients with connections of their own wait for no pooler.",
        # Both a pool that is too small and a pooler whose CPU is full predict it.
        is_specific=False,
    )


def _more_buffers(base: _Base) -> Intervention | None:
    now_mb = base.number("shared_buffers") * PAGE_BYTES / _MB
    dataset = base.record.dataset
    data_mb = ((base.record.plan.dataset_bytes or 0) if dataset is None else dataset.total_bytes) / _MB
    most_mb = _MAX_MEMORY_RATIO * base.memory_bytes / _MB
    more_mb = math.floor(min(most_mb, _MIN_GROWTH * data_mb))
    if more_mb >= _MIN_GROWTH * now_mb:
        return Intervention(
            varied="shared_buffers",
            levels=(f"{now_mb:.0f}MB", f"{more_mb}MB"),
            expects=VerdictKind.FASTER,
            why="Pages that stay in shared_buffers are not read again.",
        )
    if base.scale < _ROOMIER:
        return None
    return Intervention(
        varied="scale",
        levels=(base.scale, base.scale // _ROOMIER),
        expects=VerdictKind.FASTER,
        why="Fewer data fit into the caches that there are.",
    )


def _more_work_mem(base: _Base) -> Intervention | None:
    now_kb = base.number("work_mem")
    # At most, all clients sort at the same time.
    most_kb = _MAX_MEMORY_RATIO * base.memory_bytes / base.load.clients / 1024
    more_kb = math.floor(min(_MORE_MEMORY * now_kb, most_kb))
    if more_kb < _MIN_GROWTH * now_kb:
        return None
    return Intervention(
        varied="work_mem",
        levels=(f"{now_kb:.0f}kB", f"{more_kb}kB"),
        expects=VerdictKind.FASTER,
        why="Sorts and hashes that fit into memory need no files.",
    )


def _fewer_checkpoints(base: _Base) -> Intervention | None:
    now_mb = base.number("max_wal_size")
    more_mb = math.floor(min(max(_MORE_WAL * now_mb, _LEAST_MORE_WAL_MB), base.find_room_for_wal() / _MB))
    if more_mb < _MIN_GROWTH * now_mb:
        return None
    return Intervention(
        varied="max_wal_size",
        levels=(f"{now_mb:.0f}MB", f"{more_mb}MB"),
        expects=VerdictKind.FASTER,
        why="Checkpoints that come less often write less in the same time, and fewer full-page images.",
    )


def _more_rows(base: _Base) -> Intervention | None:
    names = {name for name, _ in base.load.scripts}
    if "tpcb-like" not in names or not names.issubset(BUILTIN_SCRIPTS) or base.scale >= _ROOMIER * base.load.clients:
        return _fewer_clients(base)
    return Intervention(
        varied="scale",
        levels=(base.scale, _ROOMIER * base.load.clients),
        expects=VerdictKind.FASTER,
        why="With more branches than clients they seldom meet at one.",
        is_specific=False,
    )


def _another_generator(base: _Base) -> Intervention | None:
    named = len(base.record.load_hosts)
    hosts = base.load.count_hosts(named)
    if hosts < min(named, base.load.clients):
        return Intervention(
            varied=LOAD_HOSTS,
            levels=(hosts, hosts + 1),
            expects=VerdictKind.FASTER,
            why="Where load hosts limit, more of them send more for as many clients.",
        )
    if hosts < 2:
        return _more_threads(base)
    # The one left out may have been the only one that limits: then the others do as much or more.
    return Intervention(
        varied=LOAD_HOSTS,
        levels=(hosts, hosts - 1),
        expects=VerdictKind.SLOWER,
        why="Where load hosts limit, fewer of them send less for as many clients.",
        is_specific=False,
    )


def _more_threads(base: _Base) -> Intervention | None:
    threads = base.load.threads
    if 2 * threads > base.load.clients:
        return None
    return Intervention(
        varied="threads",
        levels=(threads, 2 * threads),
        expects=VerdictKind.FASTER,
        why="A server that has time left answers more threads.",
    )


_CHOICES: Mapping[Resource, Callable[[_Base], Intervention | None]] = {
    Resource.CPU: _other_work,
    Resource.WAL_FLUSH: _no_flushes,
    Resource.WAL_LOCK: _fewer_clients,
    Resource.DATA_READ: _more_buffers,
    Resource.DATA_WRITE: _fewer_checkpoints,
    Resource.TEMP_FILE: _more_work_mem,
    Resource.STANDBY: _no_standby,
    Resource.POOL: _no_pooler,
    Resource.POOLER: _no_pooler,
    Resource.LOCK: _more_rows,
    Resource.LIGHTWEIGHT_LOCK: _fewer_clients,
    Resource.CLIENT: _more_clients,
    Resource.LOAD_GENERATOR: _another_generator,
}

# Nothing of the server itself is changed, and its data stay as they are.
_GIVEN_CHOICES: Mapping[Resource, Callable[[_Base], Intervention | None]] = {
    Resource.CPU: _other_work,
    Resource.WAL_FLUSH: _no_flushes,
    Resource.WAL_LOCK: _fewer_clients,
    Resource.LOCK: _fewer_clients,
    Resource.LIGHTWEIGHT_LOCK: _fewer_clients,
    Resource.POOL: _no_pooler,
    Resource.POOLER: _no_pooler,
    Resource.NETWORK: _more_clients,
    Resource.CLIENT: _more_clients,
    Resource.LOAD_GENERATOR: _another_generator,
}


def _write_command(change: Intervention, base: MeasuredLoad) -> str:
    """Write the command that compares, with the load and server as they were."""
    if change.varied == LOAD_HOSTS:
        axis = f"{LOAD_HOSTS}={','.join(map(show_value, change.levels))}"
        return write_command(base, Command.SWEEP, axis, without=(LOAD_HOSTS,))
    if change.varied in OF_LOAD:
        before, after = map(show_value, change.levels)
        option = f"--{change.varied}"
        return write_command(base, Command.COMPARE, option, before, option, after, without=(change.varied,))
    return write_comparison(base, change.varied, change.levels)
