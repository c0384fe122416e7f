"""What was seen in a study, as immutable types; `record.json` and each `trial.json` are these, in JSON.

Raw values in the unit their source gave them. Absent is None, with the reason in `absent` where there is one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from pgdyno.plan.plan import Plan, PlannedTrial
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.tuned import Tuned
from pgdyno.spec.study import Study

FORMAT_VERSION = 2
"""1: studies without comparisons. 2: variants, sweeps and searches; all that is new has a default, so 1 reads as it is."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which PostgreSQL it was."""

    version: str
    """As `postgres --version` says after the program's name, such as `18.6` or `15.18 (Debian ...)`."""
    version_num: int
    """As server_version_num, such as 180006."""
    bindir: str
    configure: str | None = None
    """Options of its build, from pg_config; None where that program is missing."""

    @property
    def major(self) -> int:
        """The major version."""
        return self.version_num // 10_000


class SettingFact(msgspec.Struct, frozen=True, kw_only=True):
    """A row of pg_settings whose value is not the built-in default."""

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
    """A table of the workload at one end of a trial, as the server's statistics have it."""

    name: str
    bytes: int
    """With TOAST and its indexes."""
    live_rows: int
    dead_rows: int
    """Versions of rows that no transaction sees any more and no vacuum has removed."""
    updated_count: int | None = None
    """Updates of its rows since its statistics began; None in records of before there was one."""
    hot_updated_count: int | None = None
    """Those of them that touched no index: heap-only tuples."""


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The data that every trial begins with, and what loading them took."""

    scale: int
    relations: tuple[RelationFact, ...]
    total_bytes: int
    init_argv: tuple[str, ...]
    init_steps_s: dict[str, float]
    """pgbench's own names of its steps, to seconds."""
    init_total_s: float
    is_reused: bool
    """Whether an earlier study had loaded it; the times are then that study's."""


class ErrorFact(msgspec.Struct, frozen=True, kw_only=True):
    """An error that ended a trial, in the three parts of `errors.PgdynoError`."""

    fact: str
    detail: str = ""
    hint: str = ""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was to be observed and was not, with the reason."""

    source: str
    reason: str


def why_missing(gaps: Iterable[Gap], source: str) -> str | None:
    """The reason of a source's gap; None where it has none."""
    return next((gap.reason for gap in gaps if gap.source == source), None)


class TrialStatus(enum.Enum):
    """How a trial ended; every member is final. A trial without one was cut short and is run again."""

    FINISHED = "finished"
    FAILED = "failed"


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: `trial.json`, written last, when all else of the trial is on disk.

    Times ending in `_monotonic_s` are CLOCK_MONOTONIC; add `clock_offset_s` for seconds since the epoch.
    """

    planned: PlannedTrial
    status: TrialStatus
    error: ErrorFact | None
    argv: tuple[str, ...]
    """Of pgbench for the measured load."""
    clock_offset_s: float
    restore_s: float
    load_start_monotonic_s: float | None
    load_end_monotonic_s: float | None
    load_cpu_s: float | None
    """CPU seconds of pgbench."""
    log_sampling_rate: float
    settings: tuple[SettingFact, ...]
    counters_before: dict[str, float | None]
    counters_after: dict[str, float | None]
    gaps: tuple[Gap, ...]
    slice_s: float | None = None
    """Length of a switchback's slices, as its pilot chose it; None where nothing alternated."""
    washout_s: float | None = None
    """How long after each change of settings a slice does not count."""
    tables_before: tuple[TableState, ...] = ()
    tables_after: tuple[TableState, ...] = ()
    """Of before and after the measured load; empty in records of before there was one."""

    @property
    def values(self) -> dict[str, str]:
        """The settings that are not as built in, by name, as pg_settings shows them."""
        return {fact.name: fact.value for fact in self.settings}

    @property
    def load_s(self) -> float | None:
        """How long the measured load ran; None where its beginning or end is not recorded."""
        start_s, end_s = self.load_start_monotonic_s, self.load_end_monotonic_s
        return None if start_s is None or end_s is None or end_s <= start_s else end_s - start_s


class StudyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`record.json`: all that holds for the whole study."""

    format_version: int
    name: str
    started_at: str
    """ISO 8601 with offset."""
    command: tuple[str, ...]
    tool_versions: dict[str, str]
    study: Study
    plan: Plan
    host: HostFacts
    server: ServerFacts
    dataset: Dataset | None
    """None until the data are loaded."""
    refused_variants: dict[str, ErrorFact] = msgspec.field(default_factory=dict, name="refused_arms")
    """Variants with which the server does not start, by name, with the reason."""
    preflight: PreflightFacts | None = None
    """What the machine was doing before the first step; None in records of before there was one."""
    tuned: Tuned | None = None
    """The derived settings that the study proves; None where it is about something else."""
    wants_card: bool = False
    """Whether a card of the data's disk belongs to it."""
    is_ended: bool | None = None
    """Whether it has run as far as it was to, with questions open if its time was over; None in records of before there was
    one."""
