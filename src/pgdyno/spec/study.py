"""Define the types of a study file: one field for each key, checked while it is read.

Values keep the user's notation (`duration = "90s"`); properties convert them to pgdyno's units. An absent key is None;
`plan/` chooses its value and gives the reason. Nothing here depends on a machine.
"""

from __future__ import annotations

import enum
import itertools
import math

import msgspec

from pgdyno.spec.failover import FailoverSpec
from pgdyno.spec.host import HostSpec
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.initdb import InitdbTable, show_choices
from pgdyno.spec.part import MOST_PARTS, PartSpec
from pgdyno.spec.pooler import PRIMARY, REPLICAS, PoolerSpec, check_pooler_name
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.search import SearchSpec
from pgdyno.spec.table import (
    CacheState,
    QueryMode,
    SettingValue,
    StudyTable,
    check_finite,
    check_name,
    check_range,
    check_setting_name,
    split_weight,
)
from pgdyno.spec.variant import ExperimentSpec, SweepSpec, VariantSpec
from pgdyno.units import parse_seconds

BUILTIN_SCRIPTS = ("tpcb-like", "simple-update", "select-only")
READING_SCRIPTS = frozenset({"select-only"})
LOADING = "init"
"""Name of the workload that loads: `pgbench -i` into an empty database. It has no scripts."""

# Source: pgbench.c of PostgreSQL 15 to 18: scale is an int32, and 21474 is where aid outgrows int4 (then bigint is
# used).
MAX_SCALE = 1_000_000


def _seconds(key: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc


MOST_STANDBYS = 8
"""Most standbys of a server: each is a copy of the data, and takes CPUs of the same machine."""
SLOT_WAL_SETTING = "max_slot_wal_keep_size"
SLOT_WAL = "2GB"
"""WAL that a primary keeps for a standby that falls behind, where the study says nothing else."""


def name_standbys(count: int) -> tuple[str, ...]:
    """Return the names of this number of standbys, as `synchronous_standby_names` knows them."""
    return tuple(f"standby{number}" for number in range(1, count + 1))


def name_replicas(count: int) -> tuple[str, ...]:
    """Return what this number of replicas of a given server are called."""
    return tuple(f"replica{number}" for number in range(1, count + 1))


class ServerKind(enum.Enum):
    """Source of PostgreSQL's programs, of which pgdyno makes a cluster of its own; or a server that is there."""

    EMBEDDED = "embedded"
    LOCAL = "local"
    GIVEN = "given"


class PartitionMethod(enum.Enum):
    """Partitioning method of pgbench_accounts."""

    RANGE = "range"
    HASH = "hash"


class RestorePolicy(enum.Enum):
    """How the data are brought back to the loaded state before each trial."""

    COPY = "copy"
    """By a copy of the loaded cluster; of an existing copy, only what differs is written."""
    COMMAND = "command"
    """By a command of the user's, such as one that clones a snapshot."""
    NONE = "none"
    """Only before the first trial: each later one begins with the data as the trial before left them."""


class GenerateAt(enum.Enum):
    """The side that generates pgbench's rows."""

    CLIENT = "client"
    SERVER = "server"


class ServerSpec(StudyTable, frozen=True, kw_only=True):
    """The PostgreSQL to measure.

    Attributes:
        kind: `embedded` is the one that pgdyno ships; `local` is installed on this machine; `given` is a server of
            yours, which pgdyno reaches by a connection string and does not start.
        version: Major version of a local installation, such as 15; found in the distributions' usual places.
        bindir: Folder with postgres, initdb and pgbench of a local installation. A relative path starts at the study file's folder.
        port: Also listen on 127.0.0.1 at this port, so that the server can be observed; absent: only a private socket. With load
            hosts, the server listens at this port for them, too; absent: at a free one. A pooler has the next one then, and standbys that
            are read from those after it.
        address: A name or an IP address by which load hosts reach the machine of pgdyno's own server; absent: the address that ssh
            shows.
        dsn: Connection string of a given server, without a password; empty for what plain psql would reach. Relative paths of its
            files, and of those of replicas and poolers, start at the study file's folder.
        settings: postgresql.conf settings on top of the server's defaults; of a given server, what each session of the
            load asks for.
        standbys: Number of standbys on this machine that stream from the server, each a copy of its data, named `standby1` and so
            on.
        replicas: Connection strings of replicas of a given server, which stream its WAL already, without passwords; several hosts in one
            are a replica each. The endpoint `replicas` reads from them.
        apply: Command line that puts settings of a given server in force, and gets them on its standard input. A relative path
            starts at the study file's folder. Absent: sessions and ALTER SYSTEM do it.
    """

    kind: ServerKind = ServerKind.EMBEDDED
    dsn: str | None = None
    version: int | None = None
    bindir: str | None = None
    port: int | None = None
    address: str | None = None
    settings: dict[str, SettingValue] = {}
    standbys: int = 0
    replicas: tuple[str, ...] = ()
    apply: str | None = None

    @property
    def readers(self) -> tuple[str, ...]:
        """The names of the servers that the endpoint `replicas` reads from."""
        return name_replicas(len(self.replicas)) or name_standbys(self.standbys)

    def __post_init__(self) -> None:
        """Refuse contradictory combinations."""
        self._check_of_given()
        if self.kind is ServerKind.LOCAL and self.version is None and self.bindir is None:
            raise ValueError('kind = "local" needs version or bindir')
        if self.kind is not ServerKind.LOCAL and (self.bindir is not None or self.version is not None):
            raise ValueError('version and bindir go with kind = "local"')
        check_range("standbys", self.standbys, 0, MOST_STANDBYS)
        if self.version is not None and self.bindir is not None:
            raise ValueError("version and bindir name the same thing: give one")
        for name, value in self.settings.items():
            check_setting_name(name)
            check_finite(f"settings {name}", value)
        if self.port is not None and not 1024 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is not within 1024 to 65535")

    def _check_of_given(self) -> None:
        is_given = self.kind is ServerKind.GIVEN
        for key in ("apply", "replicas"):
            if getattr(self, key) and not is_given:
                raise ValueError(f'{key} goes with kind = "given"')
        if is_given != (self.dsn is not None):
            raise ValueError('dsn goes with kind = "given", and is needed there')
        if is_given and self.port is not None:
            raise ValueError("a given server has its own port")
        if is_given and self.standbys:
            raise ValueError(
                "standbys are for pgdyno's own servers: a given server's are named with replicas, and read from"
            )


class DataSpec(InitdbTable, frozen=True, kw_only=True):
    """The data to load: pgbench's tables, or what an SQL file makes; or those of a database that is there.

    Attributes:
        init: SQL file that makes the data in a given server, in place of pgbench's tables. A relative path starts at the
            study file's folder.
        database: Name of a database in a given server, which is taken as it is, and only read unless `--allow` says otherwise.
        scale: pgbench's scale factor: 100,000 accounts, about 15 MB, each; absent: chosen from the machine.
        fillfactor: Fill factor of the tables, in percent.
        partitions: Number of partitions of pgbench_accounts; 0 for an unpartitioned table.
        partition_method: Used when `partitions` is above 0.
        foreign_keys: Whether to create foreign keys.
        generate: Which side generates the rows.
        wal_home: Folder on another disk for pg_wal of pgdyno's own servers; absent: it lies with the data. A relative path
            starts at the study file's folder.
        restore: How each trial's data are brought back to the loaded state.
        restore_command: Command line that does it, with `restore` "command". A relative path starts at the study file's folder.
        checksums, wal_segment_size, encoding, locale, locale_provider: See `InitdbTable`.
    """

    init: str | None = None
    database: str | None = None
    scale: int | None = None
    fillfactor: int = 100
    partitions: int = 0
    partition_method: PartitionMethod = PartitionMethod.RANGE
    foreign_keys: bool = False
    generate: GenerateAt = GenerateAt.CLIENT
    wal_home: str | None = None
    restore: RestorePolicy = RestorePolicy.COPY
    restore_command: str | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        if (self.restore is RestorePolicy.COMMAND) != (self.restore_command is not None):
            raise ValueError('restore_command goes with restore = "command", and is needed there')
        if self.scale is not None:
            check_range("scale", self.scale, 1, MAX_SCALE)
        # Source: pgbench's own range for --fillfactor.
        check_range("fillfactor", self.fillfactor, 10, 100)
        check_range("partitions", self.partitions, 0, 100_000)
        self.check_initdb()
        for key in ("init", "database"):
            if getattr(self, key) is None:
                continue
            if not getattr(self, key):
                raise ValueError(f"{key} is empty: it needs a name")
            fields = (field for field in msgspec.structs.fields(self) if field.name != key)
            others = [field.name for field in fields if getattr(self, field.name) != field.default]
            if others:
                raise ValueError(f"{key} takes the place of other data: leave out {', '.join(others)}")

    @property
    def is_own(self) -> bool:
        """True for data of the user's own, of which only the server knows more."""
        return self.init is not None or self.database is not None


class WorkloadSpec(StudyTable, frozen=True, kw_only=True):
    """A load: its scripts, clients and rate.

    Attributes:
        name: Name in reports.
        scripts: Built-in names or script files, each with an optional weight in pgbench's notation: `pay.sql@3`.
        Absent: the built-in script with the workload's name, or `init`, which loads. Relative paths start at the study file's
        folder.
        mode: How queries are sent.
        clients: Connections; absent: chosen from the machine.
        threads: pgbench's threads; absent: chosen from the machine and the clients.
        rate_tps: Open loop: transactions are scheduled at this rate, and latency counts from the scheduled start.
        latency_limit: Slower transactions are counted; with `rate_tps`, those that are already too late are skipped.
        max_tries: Number of tries of a transaction that fails by serialization or deadlock.
        endpoint: What the clients connect to: `primary`, which is the server itself, `replicas`, its standbys, or a pooler by its
            name; absent: `primary`.
        parts: Loads that run side by side as one, in place of scripts, clients, threads, rate_tps and endpoint.
    """

    name: str
    scripts: tuple[str, ...] = ()
    mode: QueryMode = QueryMode.SIMPLE
    clients: int | None = None
    threads: int | None = None
    rate_tps: float | None = None
    latency_limit: str | None = None
    max_tries: int = 1
    endpoint: str | None = None
    parts: tuple[PartSpec, ...] = ()

    def __post_init__(self) -> None:
        """Check ranges and the scripts' form."""
        check_name(self.name)
        if self.parts:
            self._check_parts()
        elif not self.scripts and self.name not in (known := (*BUILTIN_SCRIPTS, LOADING)):
            raise ValueError(f"workload {self.name!r} has no scripts and is none of {', '.join(known)}")
        if self.clients is not None:
            check_range("clients", self.clients, 1, 10_000)
        if self.threads is not None:
            check_range("threads", self.threads, 1, 1_000)
        if self.rate_tps is not None and not (math.isfinite(self.rate_tps) and self.rate_tps > 0):
            raise ValueError(f"rate_tps {self.rate_tps:g} is not above 0")
        if self.latency_limit_ms is not None and self.latency_limit_ms <= 0:
            raise ValueError(f"latency_limit {self.latency_limit} is not above 0")
        check_range("max_tries", self.max_tries, 1, 1_000)
        for script in self.weighted_scripts:
            check_range(f"weight of {script[0]}", script[1], 1, 1_000_000)

    def _check_parts(self) -> None:
        for key in ("scripts", "clients", "threads", "rate_tps", "endpoint"):
            if getattr(self, key) not in (None, ()):
                raise ValueError(f"parts of workload {self.name} take the place of {key}")
        if not 2 <= len(self.parts) <= MOST_PARTS:
            raise ValueError(f"parts of workload {self.name}: {len(self.parts)} is not within 2 to {MOST_PARTS}")
        names = [part.name for part in self.parts]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"parts: {repeated[0]} comes twice")
        for part in self.parts:
            if not part.scripts and part.name not in BUILTIN_SCRIPTS:
                raise ValueError(f"part {part.name!r} has no scripts and is none of {', '.join(BUILTIN_SCRIPTS)}")

    @property
    def asked_clients(self) -> int | None:
        """Connections that it asks for, those of all its parts together; None if that is to be chosen."""
        return sum(part.clients for part in self.parts) if self.parts else self.clients

    @property
    def is_loading(self) -> bool:
        """True if each trial of this workload loads the data."""
        return self.name == LOADING and not self.scripts and not self.parts

    @property
    def weighted_scripts(self) -> tuple[tuple[str, int], ...]:
        """Name or path of each script with its weight, those of each part after those of the part before; none of loading.

        Raises:
            ValueError: What follows the last `@` is not a whole number.
        """
        if self.parts:
            return tuple(script for part in self.parts for script in part.weighted_scripts)
        names = self.scripts or (() if self.is_loading else (self.name,))
        return tuple(split_weight(text) for text in names)

    @property
    def latency_limit_ms(self) -> float | None:
        """Latency limit in milliseconds."""
        return None if self.latency_limit is None else _seconds("latency_limit", self.latency_limit) * 1000.0


class TrialsSpec(StudyTable, frozen=True, kw_only=True):
    """Number, length and start conditions of each workload's trials.

    Attributes:
        rounds: Trials of each workload; the order of the workloads is random in each round.
        duration: Length of the measured load of one trial.
        warm_up: Length of the unmeasured load before it.
        cache: `warm`: tables and indexes are read before the load. `cold`: their pages are dropped from the caches. `asis`:
            neither; restoring leaves a part of them in the kernel's cache.
        seed: Seed of everything random; absent: 1.
    """

    rounds: int = 3
    duration: str = "30s"
    warm_up: str = "5s"
    cache: CacheState = CacheState.WARM
    seed: int = 1

    def __post_init__(self) -> None:
        """Check ranges."""
        check_range("rounds", self.rounds, 1, 1_000)
        # pgbench's -T takes whole seconds from 1.
        if not 1 <= self.duration_s <= 7 * 86_400 or self.duration_s != int(self.duration_s):
            raise ValueError(f"duration {self.duration} is not a whole number of seconds from 1s to 7d")
        if not 0 <= self.warm_up_s <= 86_400 or self.warm_up_s != int(self.warm_up_s):
            raise ValueError(f"warm_up {self.warm_up} is not a whole number of seconds from 0s to 1d")
        check_range("seed", self.seed, 0, 2**31 - 1)

    @property
    def duration_s(self) -> float:
        """Seconds of measured load."""
        return _seconds("duration", self.duration)

    @property
    def warm_up_s(self) -> float:
        """Seconds of unmeasured load before it."""
        return _seconds("warm_up", self.warm_up)


class Study(StudyTable, frozen=True, kw_only=True):
    """A question, a server, its data, its workloads and how they are measured.

    Variants or a sweep make it a comparison; a search finds the largest rate that holds a latency limit. A single
    variant with a sweep is the base of all its levels.
    """

    question: str = ""
    server: ServerSpec = ServerSpec()
    data: DataSpec = DataSpec()
    workload: tuple[WorkloadSpec, ...] = ()
    trials: TrialsSpec = TrialsSpec()
    variant: tuple[VariantSpec, ...] = ()
    sweep: tuple[SweepSpec, ...] = ()
    search: SearchSpec | None = None
    scaling: ScalingSpec | None = None
    experiment: ExperimentSpec = ExperimentSpec()
    failover: FailoverSpec | None = None
    """The primary ends in each trial, and a standby takes its place; absent: it stays up."""
    host: HostSpec | None = None
    """Declared properties of the machine; the others are observed."""
    hosts: dict[str, HostEntry] = {}
    """Machines that are reached by ssh, by name."""
    poolers: dict[str, PoolerSpec] = {}
    """Connection poolers that the load may connect to, by name."""

    def __post_init__(self) -> None:
        """Refuse a study without a workload, and two workloads with the same name."""
        names = [workload.name for workload in self.workload]
        if not names:
            raise ValueError("no [[workload]]: nothing to measure")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"several workloads are named {', '.join(repeated)}")
        if len(self.variant) > 1 and self.sweep:
            raise ValueError(
                "variant and sweep exclude each other: a sweep makes its variants itself, from one at the most"
            )
        if len(self.variant) == 1 and not self.sweep:
            raise ValueError("variant comes once: a comparison needs two, of which the first is the reference")
        if len(self.sweep) > 2:
            raise ValueError(f"sweep has {len(self.sweep)} axes: two are the most")
        self._check_scripts()
        if self.search is not None:
            self._check_search()
        if self.scaling is not None:
            self._check_scaling(self.scaling)
        if self.data.init is not None:
            self._check_own_data()
        if self.server.kind is ServerKind.GIVEN:
            self._check_given()
        self._check_hosts()
        self._check_endpoints()

    def _check_given(self) -> None:
        if self.data.restore is not RestorePolicy.COPY:
            raise ValueError("restore is for pgdyno's own servers: a given server's data are not copied")
        if self.data.wal_home is not None:
            raise ValueError("wal_home is for pgdyno's own servers: pg_wal of a given server stays where it is")
        if self.is_emulated:
            raise ValueError("emulate is for pgdyno's own servers: a given server stays where it is")
        if self.server.address is not None:
            raise ValueError("load hosts reach a given server by its dsn: leave out address")
        if chosen := show_choices(self.data):
            raise ValueError(f"{next(iter(chosen))} is for pgdyno's own servers: a given one is there already")

    def _check_scripts(self) -> None:
        if not any(variant.scripts for variant in self.variant):
            return
        if len(self.workload) > 1:
            raise ValueError("scripts of variants take the place of the workload's: name one workload")
        if self.workload[0].is_loading:
            raise ValueError(f"scripts of variants do not go with the workload {LOADING}, which has none")

    def _check_endpoints(self) -> None:
        for name in self.poolers:
            check_pooler_name(name)
        known = (PRIMARY, REPLICAS, *self.poolers)
        for name in self.endpoints:
            if name not in known:
                raise ValueError(
                    f"endpoint {name!r} is none of {', '.join(known)}: a pooler has a table [poolers.{name}]"
                )

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that workloads, parts, variants and levels name."""
        levels = [str(level) for axis in self.sweep if axis.name == "endpoint" for level in axis.levels]
        asked = [*(one.endpoint for one in self.workload), *(one.endpoint for one in self.variant)]
        asked += [part.endpoint for one in self.workload for part in one.parts]
        return [*(endpoint for endpoint in asked if endpoint is not None), *levels]

    def _check_hosts(self) -> None:
        if self.load_hosts and self.failover is not None and self.server.kind is not ServerKind.GIVEN:
            raise ValueError(
                "the load of a failover comes from the server's machine: leave out failover, or load hosts"
            )
        if self.server.address is not None and not self.load_hosts:
            raise ValueError("address is where load hosts reach the server, and the study names no load host")
        servers = [name for name, entry in self.hosts.items() if entry.role is HostRole.SERVER]
        if len(servers) > 1:
            raise ValueError(f"hosts {' and '.join(servers)} both have the role of the server: a study has one server")
        if self.load_hosts and any(one.is_loading for one in self.workload):
            raise ValueError(f"the workload {LOADING} loads data from this machine: leave out load hosts")

    def _check_own_data(self) -> None:
        named = [*(one.weighted_scripts for one in self.workload), *(one.weighted_scripts for one in self.variant)]
        for name, _ in itertools.chain(*named):
            if name in BUILTIN_SCRIPTS:
                raise ValueError(f"data would lack the tables that {name} needs: name script files")

    def _check_search(self) -> None:
        if self.is_comparison:
            raise ValueError("search and variants exclude each other: search the limit of one server at a time")
        for workload in self.workload:
            for key in ("rate_tps", "latency_limit"):
                if getattr(workload, key) is not None:
                    raise ValueError(f"{key} is chosen by the search: leave it out of workload {workload.name}")
        for key in ("design", "slice"):
            if getattr(self.experiment, key) is not None:
                raise ValueError(f"{key} applies only to comparisons, not to a search")

    def _check_scaling(self, scaling: ScalingSpec) -> None:
        if self.sweep or self.search is not None:
            raise ValueError("scaling follows variants, or a study that compares nothing: no sweep and no search")
        workload = self.find_swept_workload()
        if workload is None:
            raise ValueError(f"scaling names {scaling.workload!r}, which is not a workload of the study")
        if workload.rate_tps is not None:
            raise ValueError(f"scaling of {workload.name}: with rate_tps, TPS does not depend on the clients")

    def find_swept_workload(self) -> WorkloadSpec | None:
        """Return the workload of the client sweep that follows the comparison; None without one."""
        if self.scaling is None:
            return None
        named = self.scaling.workload or self.workload[0].name
        return next((workload for workload in self.workload if workload.name == named), None)

    @property
    def server_host(self) -> tuple[str, HostEntry] | None:
        """Name and entry of the server's machine; None if the study names none."""
        return next(((name, entry) for name, entry in self.hosts.items() if entry.role is HostRole.SERVER), None)

    @property
    def load_hosts(self) -> dict[str, HostEntry]:
        """Machines that pgbench runs on, by name; none if it runs on this one."""
        return {name: entry for name, entry in self.hosts.items() if entry.role is HostRole.LOAD}

    @property
    def is_emulated(self) -> bool:
        """True if the study runs on an emulation of the machine that it declares."""
        return self.host is not None and self.host.emulate

    @property
    def is_comparison(self) -> bool:
        """True if the study compares variants."""
        return bool(self.variant or self.sweep)
