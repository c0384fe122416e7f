"""Define the tables of a study file for comparisons: variants, sweeps, and the required confidence.

A variant specifies only what differs from the study's own server, data and workloads. The first variant is the
reference, with which the others are compared. `facts/` holds what changing a setting costs, and `plan/` uses it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from pgdyno.facts.gucs import find_guc, read_value
from pgdyno.spec.initdb import INITDB_KEYS, InitdbTable, read_choices, show_choices, with_choices
from pgdyno.spec.table import (
    CacheState,
    QueryMode,
    SettingValue,
    StudyTable,
    check_finite,
    check_name,
    check_range,
    check_setting_name,
    check_share,
    make_printable,
    split_weight,
)
from pgdyno.units import parse_seconds

MOST_VARIANTS = 200
LOAD_HOSTS = "load_hosts"
_MOST = {"scale": 1_000_000, "clients": 10_000, "threads": 1_000, LOAD_HOSTS: 100}
MOST_MINUTES = 14 * 24 * 60
LONGEST_SLICE_S = 10.0
"""Longest slice of a switchback: a block of load must hold a few rounds."""
# A change of settings and its washout take about 60 ms.
_SHORTEST_SLICE_S = 0.2
# Above this, no difference would be detected.
_LARGEST_DETECT = 0.9
_SYSCTL_NAME = re.compile(r"/?[a-z0-9_]+([./][A-Za-z0-9_.:-]+)+|mount:/[^:=]*:[a-z_]+")
# Source: Documentation/admin-guide/sysctl of the Linux kernel: the folders of /proc/sys.
_SYSCTL_FOLDERS = frozenset({"abi", "dev", "fs", "kernel", "net", "user", "vm"})
# The folders of /sys whose settings can be variants, and /sys itself.
_OF_MOUNT = "mount:/"
_SYSFS_FOLDERS = ("/sys/", "sys/", "block/", "devices/", "kernel/mm/")
OF_PLACE = ("home", "wal_home")
"""Names of the places that a variant may set: the folder of its cluster, and that of its pg_wal."""
OF_FOLDER = ("server", *OF_PLACE)
"""Names of what a variant may set to a folder."""
OF_LOAD = frozenset(
    {"server", "scale", "mode", "clients", "threads", LOAD_HOSTS, "endpoint", "cache", *OF_PLACE, *INITDB_KEYS}
)
"""Names of the properties of server and load that a variant may set in addition to settings."""
WITH_DATA = "none"
"""The WAL home of a variant whose pg_wal lies with the data, whatever the study's is."""
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,12}\s*")


class VariantSpec(InitdbTable, frozen=True, kw_only=True):
    """A named set of settings under test.

    Attributes:
        name: Name in reports; absent: made from what it sets.
        settings: postgresql.conf settings on top of `[server.settings]`.
        sysctl: Kernel settings, such as `vm.dirty_background_bytes`, or by their path below /sys, such as
            `kernel/mm/transparent_hugepage/enabled`; or an option of a mounted file system, such as `mount:/mnt/data:commit`.
        server: Another PostgreSQL: `embedded`, a major version, or a folder with its programs.
        scale: Another pgbench scale.
        mode: How queries are sent.
        clients: Connections.
        threads: pgbench's threads.
        load_hosts: Number of load hosts that the clients are divided among, the first that the study names; absent: all.
        endpoint: What the clients connect to: `primary`, `replicas`, or a pooler by its name.
        scripts: Another load in place of the workload's: built-in names or script files, as in `WorkloadSpec`. A transaction of
            each variant should do the same work.
        cache: State of the caches when its trials begin: `warm`, `cold` or `asis`.
        home: Folder in which the variant's cluster lies, on the disk to compare. A relative path starts at the study file's
            folder.
        wal_home: Folder on another disk for its pg_wal; `none`: it lies with the data, whatever `[data]` says.
        checksums, wal_segment_size, encoding, locale, locale_provider: See `InitdbTable`.
    """

    name: str | None = None
    settings: dict[str, SettingValue] = {}
    sysctl: dict[str, str | int] = {}
    server: str | int | None = None
    scale: int | None = None
    mode: QueryMode | None = None
    clients: int | None = None
    threads: int | None = None
    load_hosts: int | None = None
    endpoint: str | None = None
    scripts: tuple[str, ...] = ()
    cache: CacheState | None = None
    home: str | None = None
    wal_home: str | None = None

    def __post_init__(self) -> None:
        """Check names and ranges."""
        if self.name is not None:
            check_name(self.name)
        for name, value in self.settings.items():
            check_setting_name(name)
            check_finite(f"settings {name}", value)
            if is_sysctl(name):
                # PostgreSQL would treat it as a setting of an extension, without effect.
                raise ValueError(f"settings {name} is a kernel setting: move it to sysctl")
        for name in self.sysctl:
            if not _SYSCTL_NAME.fullmatch(name):
                raise ValueError(f"sysctl {name!r} is not the name of a kernel setting")
        self._check_named()
        self.check_initdb()
        for key, most in _MOST.items():
            if (count := getattr(self, key)) is not None:
                check_range(key, count, 1, most)
        for script, weight in self.weighted_scripts:
            check_range(f"weight of {script}", weight, 1, 1_000_000)

    @property
    def weighted_scripts(self) -> tuple[tuple[str, int], ...]:
        """Name or path of each script with its weight; none where the workload's run.

        Raises:
            ValueError: What follows the last `@` is not a whole number.
        """
        return tuple(split_weight(text) for text in self.scripts)

    def _check_named(self) -> None:
        for key in OF_FOLDER:
            if not isinstance(named := getattr(self, key), str):
                continue
            if not named.strip():
                raise ValueError(f"{key} is empty")
            if "\0" in named:
                raise ValueError(f"{key} {named!r} is no path")

    @property
    def title(self) -> str:
        """Name of the variant, or what it sets."""
        if self.name is not None:
            return self.name
        said = {
            "server": self.server,
            "scale": self.scale,
            "mode": None if self.mode is None else self.mode.value,
            "clients": self.clients,
            "threads": self.threads,
            "load_hosts": self.load_hosts,
            "endpoint": self.endpoint,
            "script": " + ".join(text.rpartition("/")[2] for text in self.scripts) or None,
            "cache": None if self.cache is None else self.cache.value,
            **{key: getattr(self, key) for key in OF_PLACE},
            **show_choices(self),
            **self.settings,
            **self.sysctl,
        }
        words = ", ".join(f"{key}={show_value(value)}" for key, value in said.items() if value is not None)
        return make_printable(words) or "as it is"


class SweepSpec(StudyTable, frozen=True, kw_only=True):
    """One axis of a sweep, and its levels: a setting, a sysctl, or another key of a variant, such as `clients` or `home`.

    Attributes:
        name: What is varied.
        levels: Its values; the first is the reference.
    """

    name: str
    levels: tuple[SettingValue, ...]

    def __post_init__(self) -> None:
        """Refuse invalid levels."""
        if len(self.levels) > MOST_VARIANTS:
            raise ValueError(f"levels of {self.name}: {len(self.levels)} are more than {MOST_VARIANTS}")
        for level in self.levels:
            check_finite(f"levels of {self.name}:", level)
        try:
            titles = [make_variant({self.name: level}).title for level in self.levels]
        except ValueError as exc:
            raise ValueError(f"levels of {self.name}: {exc}") from exc
        if len(self.levels) < 2:
            raise ValueError(f"levels of {self.name}: a sweep needs at least two levels")
        repeated = next((title for title in titles if titles.count(title) > 1), None)
        if repeated is not None:
            raise ValueError(f"levels of {self.name}: {repeated} comes twice")


class DesignKind(enum.Enum):
    """Design of a comparison."""

    SWITCHBACK = "switchback"
    """Settings alternate in short slices under one continuous load."""
    PAIRED = "paired"
    """A trial of each variant in turn, each from the same restored state."""
    LIVE = "live"
    """The servers of all variants are up at once, and short slices of load alternate: one server runs, the others are frozen.
    Loads that differ only in clients, threads or mode take turns on one server."""


class ExperimentSpec(StudyTable, frozen=True, kw_only=True):
    """The required confidence and the time budget.

    Attributes:
        minutes: Time budget including loading; the study ends sooner if everything is decided. Absent: chosen from the
            number of variants and workloads.
        detect: The smallest difference that matters; variants that differ less are equivalent.
        confidence: One minus the error rate of verdicts.
        design: How variants are compared; absent: chosen from what changing the settings costs.
        slice: Length of slices or turns; absent: chosen for the load, and in a switchback by a pilot.
        extra_rounds: Whether open questions get more rounds from the minutes that decided ones leave.
    """

    minutes: float | None = None
    detect: str = "3%"
    confidence: str = "95%"
    design: DesignKind | None = None
    slice: str | None = None
    extra_rounds: bool = True

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.minutes is not None and not 0.5 <= self.minutes <= MOST_MINUTES:
            raise ValueError(f"minutes {self.minutes:g} is not within 0.5 to {MOST_MINUTES}")
        check_share("detect", self.detect, 0.001, _LARGEST_DETECT)
        check_share("confidence", self.confidence, 0.5, 0.9999)
        if self.slice_s is not None and not _SHORTEST_SLICE_S <= self.slice_s <= LONGEST_SLICE_S:
            raise ValueError(f"slice {self.slice} is not within {_SHORTEST_SLICE_S:g}s to {LONGEST_SLICE_S:g}s")

    @property
    def slice_s(self) -> float | None:
        """Seconds of a slice or turn; None if it is chosen for the load."""
        if self.slice is None:
            return None
        try:
            return parse_seconds(self.slice)
        except ValueError as exc:
            raise ValueError(f"slice {exc}") from exc

    @property
    def detect_ratio(self) -> float:
        """Smallest difference that matters, as a share."""
        return check_share("detect", self.detect, 0.001, _LARGEST_DETECT)

    @property
    def alpha(self) -> float:
        """Allowed error rate of verdicts."""
        return 1.0 - check_share("confidence", self.confidence, 0.5, 0.9999)


def make_variant(levels: Mapping[str, SettingValue]) -> VariantSpec:
    """Make a variant from values by name: server settings, kernel settings, or properties of server and load.

    Args:
        levels: Values by name; numbers may be text from a command line.

    Raises:
        ValueError: A name or a value is invalid.
    """
    server, mode = levels.get("server"), levels.get("mode")
    if isinstance(server, bool | float):
        raise ValueError(f"server {server!r} is neither a version nor a folder")  # noqa: TRY004 - as every other value
    modes = [each.value for each in QueryMode]
    if mode is not None and mode not in modes:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(modes)}")
    states = [each.value for each in CacheState]
    if (cache := levels.get("cache")) is not None and cache not in states:
        raise ValueError(f"cache {cache!r} is not one of {', '.join(states)}")
    others = {name: level for name, level in levels.items() if name not in OF_LOAD}
    made = VariantSpec(
        settings={name: level for name, level in others.items() if not is_sysctl(name)},
        sysctl={name: show_value(level) for name, level in others.items() if is_sysctl(name)},
        server=server,
        scale=_read_whole("scale", levels),
        mode=None if mode is None else QueryMode(mode),
        clients=_read_whole("clients", levels),
        threads=_read_whole("threads", levels),
        load_hosts=_read_whole("load_hosts", levels),
        endpoint=_read_text("endpoint", levels),
        cache=None if cache is None else CacheState(cache),
        home=_read_text("home", levels),
        wal_home=_read_text("wal_home", levels),
    )
    return with_choices(made, read_choices({key: levels[key] for key in INITDB_KEYS if key in levels}))


def show_value(value: SettingValue) -> str:
    """Format a value as PostgreSQL would."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_number(settings: Mapping[str, SettingValue], name: str, *, major: int) -> float:
    """Return a server setting's value or default in its own unit, such as MB for max_wal_size; on is 1.

    Raises:
        LookupError: This version has no such setting.
    """
    guc = find_guc(name, major)
    if guc is None or guc.boot is None:
        raise LookupError(f"PostgreSQL {major} has no {name}")
    return float(read_value(guc, show_value(settings.get(name, guc.boot))))


def is_server_folder(named: str) -> bool:
    """Return whether a server is named by a folder of programs: neither `embedded` nor a major version."""
    return named != "embedded" and not (named.isascii() and named.isdigit())


def is_sysctl(name: str) -> bool:
    """Return whether a name is a kernel setting rather than a PostgreSQL setting."""
    head, dot, _ = name.partition(".")
    return (bool(dot) and head in _SYSCTL_FOLDERS) or name.startswith((*_SYSFS_FOLDERS, _OF_MOUNT))


def fold_name(name: str) -> str:
    """Return what is equal for two names of one setting: PostgreSQL's names are case-insensitive, those of the kernel are not."""
    return name if is_sysctl(name) else name.lower()


def _read_text(name: str, levels: Mapping[str, SettingValue]) -> str | None:
    level = levels.get(name)
    if level is None or isinstance(level, str):
        return level
    raise ValueError(f"{name} {level!r} is not a text")


def _read_whole(name: str, levels: Mapping[str, SettingValue]) -> int | None:
    level = levels.get(name)
    if level is None or (isinstance(level, int) and not isinstance(level, bool)):
        return level
    if isinstance(level, str) and _WHOLE_NUMBER.fullmatch(level):
        return int(level)
    raise ValueError(f"{name} {level!r} is not a whole number")
