"""Define the immutable types that `record.json` and each `trial.json` hold.

Values are raw, in the unit of their source. Absent is None, with the reason in `absent` where one is known.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

import msgspec

from pgdyno.facts.gucs import show_mode
from pgdyno.facts.views import find_reset_with
from pgdyno.plan.places import Place, place_of
from pgdyno.plan.plan import Plan, PlannedTrial
from pgdyno.plan.types import PlannedWorkload
from pgdyno.record.described_settings import SettingsSaid
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.plans import StatementPlan
from pgdyno.record.statements import StatementCounts
from pgdyno.record.tuned import Tuned
from pgdyno.spec.initdb import DEFAULT_SEGMENT_MB
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import ServerKind, Study

FORMAT_VERSION = 7
"""1: studies without comparisons. 2: variants, sweeps and searches. 3: given servers. 4: given servers whose machine was watched
by ssh, with samples on its own clock. 5: loads of several pgbenches, from load hosts or in parts. 6: loads that take turns on one
server. 7: what earlier pgdynos would run in another way or refuse to read: numbers of load hosts as variants, parts on a given
server, load hosts beside standbys or poolers of pgdyno's own, parts on load hosts, replicas of a given server. All can be read: new
fields have defaults."""
TURNS_FORMAT = 6
"""Of records of loads that take turns on one server."""
DIVIDED_FORMAT = 5
"""Of records of loads of several pgbenches."""
WATCHED_FORMAT = 4
"""Of records of given servers whose machine was watched."""
OWN_SERVER_FORMAT = 2
"""Of records of pgdyno's own servers, which earlier pgdynos read, too; those of given servers lack the host that these need."""
GIVEN_FORMAT = 3
"""Of records of given servers whose machine was not watched."""


def choose_format(study: Study, plan: Plan, otherwise: int) -> int:
    """Return the earliest format that can hold a study and what its trials leave.

    Args:
        study: The study.
        plan: Its plan.
        otherwise: The format for its kind of server.
    """
    is_given = study.server.kind is ServerKind.GIVEN
    has_new_topology = bool(study.load_hosts) and not is_given and bool(study.server.standbys or study.poolers)
    has_new_topology = has_new_topology or bool(study.server.replicas)
    is_apart = is_given or bool(study.load_hosts)
    has_new_load = any(load.load_hosts is not None or (is_apart and load.parts) for load in plan.loads)
    if has_new_topology or has_new_load:
        return FORMAT_VERSION
    if plan.takes_turns:
        return TURNS_FORMAT
    # Several pgbenches make a load, or one elsewhere, each with files of its own.
    is_shared = study.server.standbys > 1
    is_divided = any(load.parts or (is_shared and REPLICAS in load.endpoints) for load in plan.loads)
    return max(DIVIDED_FORMAT, otherwise) if study.load_hosts or is_divided else otherwise


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The PostgreSQL version and build."""

    version: str
    """Version from `postgres --version`, such as `18.6` or `15.18 (Debian ...)`."""
    version_num: int
    """Value of server_version_num, such as 180006."""
    bindir: str
    configure: str | None = None
    """Build options from pg_config; None where that program is missing."""
    settings_said: SettingsSaid | None = None
    """Settings of a version that pgdyno was not tried with; None for other versions, or if its program did not answer."""

    @property
    def major(self) -> int:
        """Major version."""
        return self.version_num // 10_000


class SettingFact(msgspec.Struct, frozen=True, kw_only=True):
    """A row of pg_settings whose value differs from the built-in default."""

    name: str
    value: str
    unit: str | None
    boot_value: str | None
    source: str


class RelationFact(msgspec.Struct, frozen=True, kw_only=True):
    """A table or index of the dataset."""

    name: str
    kind: str
    bytes: int
    pages: int
    rows: float | None


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a workload table before or after a trial."""

    name: str
    bytes: int
    """Size with TOAST and indexes."""
    live_rows: int
    dead_rows: int
    """Dead row versions that vacuum has not yet removed."""
    updated_count: int | None = None
    """Row updates since its statistics began; None in older records."""
    hot_updated_count: int | None = None
    """Updates that changed no index (heap-only tuples)."""


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The data with which every trial begins, and the time that loading took."""

    scale: int
    relations: tuple[RelationFact, ...]
    total_bytes: int
    init_argv: tuple[str, ...]
    init_steps_s: dict[str, float]
    """Seconds by pgbench's name of the step."""
    init_total_s: float
    is_reused: bool
    """True if an earlier study loaded the data; the times are then from that study."""
    file_sha256: str | None = None
    """Of the SQL file that made the data, as pgdyno read it; None for pgbench's tables."""


class ErrorFact(msgspec.Struct, frozen=True, kw_only=True):
    """An error that ended a trial, in the three parts of `errors.PgdynoError`."""

    fact: str
    detail: str = ""
    hint: str = ""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should have been observed but was not, with the reason."""

    source: str
    reason: str


INITIALIZE = "--initialize"
"""The option with which pgbench loads data."""

LOST_COUNTERS = "statistics views"
"""The source of a gap: counters that a PostgreSQL which pgdyno was not tried with does not have where they are expected."""
RESET_COUNTERS = Gap(source="server's counters", reason="statistics were reset while the load ran")
"""The gap of a trial some of whose counters fell."""

UNSEEN_MACHINE = "nobody looked at this server's machine"
"""The reason for what only the machine of a given server would show."""
UNSEEN_GAPS = (
    Gap(source="os sampler", reason=UNSEEN_MACHINE),
    Gap(source="server log", reason=UNSEEN_MACHINE),
)
"""The gaps of each trial on such a server."""


def why_missing(gaps: Iterable[Gap], source: str) -> str | None:
    """Return the reason of a source's gap; None if the source has no gap."""
    return next((gap.reason for gap in gaps if gap.source == source), None)


UNREAD_LOG = Gap(source="server log", reason="the log of a given server is not read")
"""The gap of each trial on a given server whose machine was watched."""


class WatchedHost(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a given server, as it was reached by ssh and watched."""

    name: str
    """Its name in the study."""
    ssh: str
    """The destination that ssh was given."""
    python: str
    """Version of the Python that watched."""
    boot_id: str
    is_load_host: bool
    """Whether the load came from the same machine: one kernel, seen with the same process ids."""


class LoadHostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that pgbench ran on, reached by ssh."""

    name: str
    """Its name in the study."""
    ssh: str
    """The destination that ssh was given."""
    python: str
    boot_id: str
    is_server_host: bool
    """Whether the server's machine is known to be the same."""
    facts: HostFacts
    pgbench: str
    """Path of its pgbench."""
    version: str
    """Version of its pgbench."""
    empty_tps: float
    """Empty statements a second that its pgbench got answered before the trials, alone."""
    empty_clients: int
    """Clients that sent them."""
    round_trip_s: float
    """Median time of an empty statement from one client there to the server and back."""
    replica_round_trips_s: tuple[float, ...] = ()
    """The same to each replica of a given server that the study reads from, in its order."""


class TrialStatus(enum.Enum):
    """Outcome of a trial; every member is final. A trial without a status was interrupted and is run again."""

    FINISHED = "finished"
    FAILED = "failed"


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: the contents of `trial.json`, which is written after all other files of the trial.

    Times ending in `_monotonic_s` are CLOCK_MONOTONIC; add `clock_offset_s` for seconds since the epoch.
    """

    planned: PlannedTrial
    status: TrialStatus
    error: ErrorFact | None
    argv: tuple[str, ...]
    """Command line of pgbench for the measured load."""
    clock_offset_s: float
    restore_s: float
    load_start_monotonic_s: float | None
    load_end_monotonic_s: float | None
    load_cpu_s: float | None
    """CPU seconds that pgbench used."""
    log_sampling_rate: float
    settings: tuple[SettingFact, ...]
    counters_before: dict[str, float | None]
    counters_after: dict[str, float | None]
    gaps: tuple[Gap, ...]
    checkpoint_s: float | None = None
    """Duration of the checkpoint that followed a trial which loaded the data; None after other trials."""
    slice_s: float | None = None
    """Length of the slices, as chosen by a pilot, or in a live round by its latencies; None if no variants alternated."""
    washout_s: float | None = None
    """Time after each change of settings that does not count."""
    tables_before: tuple[TableState, ...] = ()
    tables_after: tuple[TableState, ...] = ()
    """Tables before and after the measured load; empty in older records."""
    statements: tuple[StatementCounts, ...] | None = None
    """What pg_stat_statements counted of the measured load; None where it is not there, and in older records."""
    generators: tuple[LoadPart, ...] = ()
    """The pgbenches of the measured load, if it came from load hosts or in parts; times of the trial are then while all of them ran."""
    plans: tuple[StatementPlan, ...] | None = None
    """The plans of the load's statements after the measured load; None in studies that compare nothing, and in older records."""
    began_monotonic_s: float | None = None
    """When its work began, before the data were restored; of trials that ran together, that of all. None in older records."""
    ended_monotonic_s: float | None = None
    """When its work ended, with the server's end; None in older records."""

    @property
    def changed_settings(self) -> tuple[SettingFact, ...]:
        """Settings that differ from built-in defaults in more than notation, with the defaults as the server shows values."""
        shown = (
            fact
            if fact.boot_value is None
            else msgspec.structs.replace(fact, boot_value=show_mode(fact.name, fact.boot_value))
            for fact in self.settings
        )
        return tuple(fact for fact in shown if fact.value != fact.boot_value)

    @property
    def values(self) -> dict[str, str]:
        """Settings that differ from built-in defaults, by name, as shown in pg_settings."""
        return {fact.name: fact.value for fact in self.settings}

    @property
    def wal_segment_bytes(self) -> int:
        """Size of a WAL segment."""
        return int(self.values.get("wal_segment_size", DEFAULT_SEGMENT_MB * 1024**2))

    @property
    def is_in_slices(self) -> bool:
        """True if the load ran in slices of a live round, or in turns, with those of other variants between them."""
        return self.slice_s is not None and not self.planned.is_block

    @property
    def logs_checkpoints(self) -> bool:
        """True if the server's log would show checkpoints."""
        return self.values.get("log_checkpoints") != "off"

    @property
    def is_loading(self) -> bool:
        """True if the trial's load was `pgbench -i`."""
        return INITIALIZE in self.argv

    @property
    def load_s(self) -> float | None:
        """Duration of the measured load; None if its start or end is not recorded."""
        start_s, end_s = self.load_start_monotonic_s, self.load_end_monotonic_s
        return None if start_s is None or end_s is None or end_s <= start_s else end_s - start_s

    @property
    def work_s(self) -> float | None:
        """Duration of all its work, from restoring to the server's end; None in older records."""
        begin_s, end_s = self.began_monotonic_s, self.ended_monotonic_s
        return None if begin_s is None or end_s is None else end_s - begin_s

    def growth(self, name: str) -> float | None:
        """Return the growth of a counter over the measured load; None if it was not read before or after it, or was reset."""
        difference = self._difference(name)
        return None if difference is None or difference < 0.0 or self.was_reset(name) else difference

    def was_reset(self, name: str) -> bool:
        """Return whether a counter was reset during the measured load: any counter of its view fell.

        One that began low may have grown since the reset to more than it was before.
        """
        if self._difference(name) is None:
            return False
        return any((self._difference(other) or 0.0) < 0.0 for other in find_reset_with(name))

    def _difference(self, name: str) -> float | None:
        later, earlier = self.counters_after.get(name), self.counters_before.get(name)
        return None if later is None or earlier is None else later - earlier


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The disks below one of the places of a study's clusters."""

    place: Place
    data_disk: DiskFacts
    wal: DiskFacts
    """The file system of pg_wal, which may be that of the data."""


EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Stands for when a record began, where it does not say."""


def read_time(started_at: str) -> datetime | None:
    """Return when a record began, in UTC; None if it does not say."""
    try:
        return datetime.fromisoformat(started_at).astimezone(UTC)
    except ValueError:
        return None


class StudyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `record.json`: everything that applies to the whole study."""

    format_version: int
    name: str
    started_at: str
    """Start time in ISO 8601 with offset."""
    command: tuple[str, ...]
    tool_versions: dict[str, str]
    study: Study
    plan: Plan
    host: HostFacts | None
    """The server's machine; None for a server of the user's that only SQL shows."""
    server_host: WatchedHost | None = None
    """How the machine of a server of the user's was watched; None where it was not, and for servers of pgdyno's own."""
    server: ServerFacts
    dataset: Dataset | None
    """Data set; None until it is loaded."""
    refused_variants: dict[str, ErrorFact] = msgspec.field(default_factory=dict, name="refused_arms")
    """Variants with which the server did not start, by name, with the reason."""
    preflight: PreflightFacts | None = None
    """State of the machine before the first step; None in older records."""
    tuned: Tuned | None = None
    """The derived settings that the study tests; None if it tests something else."""
    wants_card: bool = False
    """True if a disk card of the data's disk belongs to the record."""
    final_looks: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    """For each workload whose final look was made, the number of the last trial that it includes; it never changes."""
    is_ended: bool | None = None
    """True if the study ran to its end, with questions open if its time budget was used up; None in older records."""
    given: GivenServer | None = None
    """What was seen of a server of the user's before the first trial; None for servers of pgdyno's own."""
    replicas: tuple[GivenServer, ...] = ()
    """What was seen of each replica of a server of the user's before the first trial, in the study's order."""
    is_busy_allowed: bool = False
    """Whether the user said to load a server of theirs that others use."""
    are_writes_allowed: bool = False
    """Whether the user said that the load may write to the database that they named."""
    allowed_data_bytes: float | None = None
    """What pgdyno's own databases may take in a server of the user's; None in older records and for pgdyno's own servers."""
    allowed_wal_bytes: float | None = None
    """WAL that a server of the user's may write while the study runs; None in older records and for pgdyno's own servers."""
    load_host: HostFacts | None = None
    """The machine that made the load, where it is not the server's own, or where nobody knows that; of several, the first."""
    load_hosts: tuple[LoadHostFacts, ...] = ()
    """The machines that the load came from, reached by ssh; empty if it came from the machine that pgdyno ran on."""
    places: tuple[PlaceFacts, ...] = ()
    """The disks of the variants' clusters, those of the reference first; empty if all lie in one place."""
    other_servers: dict[str, ServerFacts] = {}
    """PostgreSQL of each variant that runs on another one than the reference, by its name; empty in older records."""

    def find_round_trip_s(self, load: PlannedWorkload, hosts: Collection[str]) -> float | None:
        """Return the longest round trip in seconds of these load hosts, of all if none of these is known, to the server of a load.

        None without load hosts, and for a load that connects to several servers of the user's, over ways of their own.
        """
        named = [one for one in self.load_hosts if one.name in hosts] or self.load_hosts
        if len(self.list_given(load)) > 1:
            return None
        if self.replicas and REPLICAS in load.endpoints:
            return max((trip for one in named for trip in one.replica_round_trips_s), default=None)
        return max((one.round_trip_s for one in named), default=None)

    def list_given(self, load: PlannedWorkload) -> tuple[GivenServer, ...]:
        """Return what was seen of the servers of the user's that a load's clients connect to; nothing of pgdyno's own."""
        if self.given is None:
            return ()
        primary = (self.given,) if any(one != REPLICAS for one in load.endpoints) else ()
        return (*primary, *(self.replicas if REPLICAS in load.endpoints else ()))

    def find_place(self, variants: tuple[str, ...]) -> int:
        """Return the number of the place of a trial's variant in `places`; 0 if all lie in one."""
        experiment = self.plan.experiment
        if not self.places or experiment is None or not variants:
            return 0
        place = place_of(self.study.data, experiment.find_variant(variants[0]))
        return next(number for number, one in enumerate(self.places) if one.place == place)

    def name_by_place(self) -> dict[int, list[str]]:
        """Return the names of the variants at each place, by its number in `places`; empty if all lie in one."""
        names: dict[int, list[str]] = {}
        if self.places and self.plan.experiment is not None:
            for variant in self.plan.experiment.variants:
                names.setdefault(self.find_place((variant.name,)), []).append(variant.name)
        return names

    def at(self, variants: tuple[str, ...]) -> StudyRecord:
        """Return the record with the disks of a trial's variant as those of its data and WAL."""
        number = self.find_place(variants)
        if number == 0 or self.host is None or self.preflight is None:
            return self
        there = self.places[number]
        return msgspec.structs.replace(
            self,
            host=msgspec.structs.replace(self.host, data_disk=there.data_disk),
            preflight=msgspec.structs.replace(self.preflight, wal=there.wal),
        )

    @property
    def began(self) -> datetime | None:
        """When the study began, in UTC; None if it does not say."""
        return read_time(self.started_at)

    @property
    def usable_cpu_count(self) -> float | None:
        """Number of CPUs that the server may use; None if nobody saw its machine."""
        return None if self.host is None else self.host.usable_cpu_count

    @property
    def usable_memory_bytes(self) -> int | None:
        """Bytes of memory that the server may use; None if nobody saw its machine."""
        return None if self.host is None else self.host.usable_memory_bytes

    @property
    def load_cpu_count(self) -> float:
        """Number of CPUs that pgbench may use; 1 if nobody knows."""
        made_by = self.load_host or self.host
        return 1.0 if made_by is None else made_by.usable_cpu_count

    @property
    def data_device(self) -> str | None:
        """The block device of the data; None if it has none, or if nobody saw its machine."""
        return None if self.host is None else self.host.data_disk.block_device

    @property
    def wal_disk(self) -> DiskFacts | None:
        """The disk of pg_wal; None if it is that of the data, or if nobody saw its machine."""
        wal = None if self.preflight is None else self.preflight.wal
        # Older records have no device of the WAL's file system.
        if self.host is None or wal is None or wal.device in {"", self.host.data_disk.device}:
            return None
        return wal

    @property
    def wal_device(self) -> str | None:
        """The block device of pg_wal; None if it is that of the data, if it has none, or if nobody saw its machine."""
        device = None if self.wal_disk is None else self.wal_disk.block_device
        return None if device == self.data_device else device
