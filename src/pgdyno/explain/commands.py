"""Write commands that ask about a load again as it was measured: on the same disks, server and data, and from the same state.

A command without these options would ask another question. Where options cannot say what a study says, there is no command.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from pgdyno.plan.experiment import Variant
from pgdyno.plan.places import place_of
from pgdyno.plan.plan import PlannedWorkload, apply_variant
from pgdyno.record.types import StudyRecord
from pgdyno.spec.hosts import list_option_values
from pgdyno.spec.initdb import combine_choices, show_choices
from pgdyno.spec.pooler import PRIMARY, PoolMode
from pgdyno.spec.study import DataSpec, RestorePolicy, ServerKind, ServerSpec, Study
from pgdyno.spec.table import CacheState, QueryMode, SettingValue
from pgdyno.spec.variant import LOAD_HOSTS, show_value

# The homes that commands use by themselves: root's, and by their ends those of other accounts.
_ROOTS_HOME, _ACCOUNTS_HOME = "/var/lib/pgdyno", "/.local/share/pgdyno"
# Keys of [data] that no option says.
_UNSAID = ("init", "database", "fillfactor", "partitions", "partition_method", "foreign_keys", "generate")


class Command(enum.Enum):
    """A command that measures a load."""

    COMPARE = "compare"
    SWEEP = "sweep"
    BENCH = "bench"


class MeasuredLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load as it was measured."""

    record: StudyRecord
    load: PlannedWorkload
    variant: Variant | None = None
    """The variant that it ran under; None in a study that compares nothing, and where several took turns."""

    @property
    def server(self) -> ServerSpec:
        """The server with the settings that it had."""
        return self.record.study.server if self.variant is None else self.variant.server

    @property
    def scale(self) -> int:
        """Scale of pgbench's data."""
        return self.record.plan.scale if self.variant is None or self.variant.scale is None else self.variant.scale

    @property
    def cache(self) -> CacheState:
        """State of the caches when a trial began."""
        asked = None if self.variant is None else self.variant.cache
        return asked or self.record.study.trials.cache

    @property
    def initdb(self) -> Mapping[str, SettingValue]:
        """What was chosen of its cluster, other than usual."""
        chosen = combine_choices(self.record.study.data) if self.variant is None else self.variant.initdb
        return show_choices(chosen)


def find_variant(record: StudyRecord, names: Collection[str]) -> Variant | None:
    """Return the variant of a trial; None if the study compares nothing, or several took turns in the trial."""
    if record.plan.experiment is None or len(names) != 1:
        return None
    return record.plan.experiment.find_variant(next(iter(names)))


def write_command(asked: MeasuredLoad, command: Command, *words: str, without: Collection[str] = ()) -> str:
    """Write a command about a load; empty where no options say all that the study says.

    Args:
        asked: The load.
        command: The command.
        words: What it asks, such as an axis.
        without: Names of options that these words take the place of.
    """
    variant = asked.variant
    load = asked.load if variant is None else apply_variant(asked.load, variant)
    sysctl = {} if variant is None else variant.sysctl
    study, machine = asked.record.study, find_machine(asked.record)
    is_unsaid = (
        (asked.server.kind is ServerKind.GIVEN and (machine is None or not _is_plain_given(asked, command)))
        or study.is_emulated
        or any(getattr(study.data, key) != getattr(DataSpec(), key) for key in _UNSAID)
        or len(load.scripts) != 1
        or bool(load.parts)
        or load.max_tries != 1
        # What is too late for its limit is skipped where there is a rate; only a bench has the option.
        or (_skips(load, without) and command is not Command.BENCH)
        or (load.load_hosts not in {None, len(study.load_hosts)} and LOAD_HOSTS not in without)
        or any(entry.python or entry.pgbench for entry in study.hosts.values())
        # A bench has no options for these.
        or (command is Command.BENCH and bool(sysctl or asked.initdb))
    )
    if is_unsaid:
        return ""
    options = [
        *_server_options(asked.server, command, without),
        *_joined("sysctl", sysctl),
        *_load_options(asked, load, without),
        *_pooler_options(asked, load),
        *_joined("initdb", asked.initdb),
        *write_place(asked.record, variant),
        *_host_options(study),
        *(word for name, _ in load.scripts for word in ("--workload", name)),
    ]
    return shlex.join(["pgdyno", *_go(machine), command.value, *words, *options])


def find_machine(record: StudyRecord) -> str | None:
    """Return the machine that a whole study ran on by ssh; None if that was this one, or the study names it itself."""
    words = record.command[1:]
    if words[:1] == ("on",):
        return words[1]
    # With a connection string, it is the machine to watch.
    if record.given is not None or record.study.server_host is not None:
        return None
    return next(list_option_values(words, "--server-host"), None)


def is_confirmable(record: StudyRecord) -> bool:
    """Return whether `explain --confirm` reaches the record's server: not a given one that another machine has reached."""
    return record.given is None or find_machine(record) is None


def _go(machine: str | None) -> tuple[str, ...]:
    return () if machine is None else ("on", machine)


def _is_plain_given(asked: MeasuredLoad, command: Command) -> bool:
    """Return whether options say all of a given server for a command on another machine."""
    study = asked.record.study
    is_plain = not (asked.server.apply or study.server.replicas or study.server_host)
    is_plain = is_plain and asked.load.endpoint == PRIMARY
    return is_plain and command is not Command.BENCH


def _host_options(study: Study) -> Iterator[str]:
    server = study.server_host
    named = [("server-host", None if server is None else server[1].ssh), ("server-address", study.server.address)]
    for name, value in (*named, *(("load-host", entry.ssh) for entry in study.load_hosts.values())):
        if value is not None:
            yield from (f"--{name}", value)


def write_comparison(asked: MeasuredLoad, setting: str, levels: Sequence[SettingValue]) -> str:
    """Write the command that compares values of a setting under a load; empty where no options say what the study says."""
    kept = {name: value for name, value in asked.server.settings.items() if name != setting}
    words = [word for level in levels for word in ("--set", join_settings({setting: level, **kept}))]
    return write_command(asked, Command.COMPARE, *words, without=("set",))


def write_place(record: StudyRecord, variant: Variant | None = None) -> tuple[str, ...]:
    """Return the options of the disks that a load ran on, and of how its data were restored."""
    data, wal_home = record.study.data, place_of(record.study.data, variant).wal_home
    home = find_home(record, variant)
    restore = data.restore.value if data.restore is RestorePolicy.NONE else None
    said = {"home": home, "wal-home": wal_home, "restore": restore, "restore-command": data.restore_command}
    return tuple(word for name, value in said.items() if value is not None for word in (f"--{name}", value))


def find_home(record: StudyRecord, variant: Variant | None = None) -> str | None:
    """Return the home of a load; None if it is the one that commands use by themselves, or was emulated."""
    if record.host is None or record.given is not None or record.study.is_emulated:
        return None
    disk = record.host.data_disk
    if record.places and variant is not None:
        disk = record.places[record.find_place((variant.name,))].data_disk
    path = disk.path
    return None if path == _ROOTS_HOME or path.endswith(_ACCOUNTS_HOME) else path


def write_disk(record: StudyRecord, variant: Variant | None = None, *, is_of_wal: bool = False) -> str:
    """Write the command that measures the disk of a load's data, or of its pg_wal: empty if that is not known to be at hand.

    The disks of a given server are not pgdyno's, an emulated disk is gone, and the study may name no folder for pg_wal.
    """
    home = place_of(record.study.data, variant).wal_home if is_of_wal else find_home(record, variant)
    if record.given is not None or record.study.is_emulated or (is_of_wal and home is None):
        return ""
    return shlex.join(["pgdyno", *_go(find_machine(record)), "disk", *([] if home is None else [home])])


def join_settings(settings: Mapping[str, SettingValue]) -> str:
    """Join settings as one value of `compare --set`."""
    return " ".join(f"{shlex.quote(name)}={shlex.quote(show_value(value))}" for name, value in settings.items())


def _server_options(server: ServerSpec, command: Command, without: Collection[str]) -> Iterator[str]:
    if "set" not in without and server.settings:
        pairs = [f"{name}={show_value(value)}" for name, value in server.settings.items()]
        for text in [join_settings(server.settings)] if command is Command.COMPARE else pairs:
            yield from ("--set", text)
    if server.dsn is not None:
        yield from ("--dsn", server.dsn)
    if server.standbys:
        yield from ("--standbys", str(server.standbys))
    if server.version is not None:
        yield from ("--server", str(server.version))
    if server.bindir is not None:
        yield from ("--server" if command is Command.COMPARE else "--pg-bindir", server.bindir)


def _load_options(asked: MeasuredLoad, load: PlannedWorkload, without: Collection[str]) -> Iterator[str]:
    said = {
        "mode": None if load.mode is QueryMode.SIMPLE else load.mode.value,
        "clients": load.clients,
        "threads": load.threads,
        "rate": None if load.rate_tps is None else f"{load.rate_tps:.10g}",
        "endpoint": None if load.endpoint == PRIMARY else load.endpoint,
        "scale": asked.scale,
        "cache": None if asked.cache is CacheState.WARM else asked.cache.value,
    }
    if _skips(load, without):
        said["latency-limit"] = f"{load.latency_limit_ms:.10g}ms"
    for name, value in said.items():
        if value is not None and name not in without:
            yield from (f"--{name}", str(value))


def _skips(load: PlannedWorkload, without: Collection[str]) -> bool:
    return load.latency_limit_ms is not None and load.rate_tps is not None and "rate" not in without


def _pooler_options(asked: MeasuredLoad, load: PlannedWorkload) -> Iterator[str]:
    pooler = asked.record.plan.find_pooler_of(load)
    if pooler is not None:
        yield from ("--pool-mode", pooler.mode.value) if pooler.mode is not PoolMode.TRANSACTION else ()
        yield from ("--pool-size", str(pooler.size)) if pooler.size is not None else ()


def _joined(option: str, values: Mapping[str, SettingValue]) -> tuple[str, ...]:
    return (f"--{option}", join_settings(values)) if values else ()
