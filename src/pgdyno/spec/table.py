"""Define the base of every table of a study file, and the checks that several tables share."""

from __future__ import annotations

import enum
import math
import re

import msgspec

SettingValue = str | int | float | bool

PLACE_SETTINGS = frozenset(
    {
        *("config_file", "data_directory", "external_pid_file", "hba_file", "ident_file"),
        *("include", "include_dir", "include_if_exists", "listen_addresses", "port"),
        *("unix_socket_directories", "unix_socket_group", "unix_socket_permissions"),
    }
)
"""Settings that decide where a server is and who may connect: changing them would make the server unreachable."""
LOG_PLACE_SETTINGS = frozenset({"lc_messages", "log_destination", "log_line_prefix", "logging_collector"})
"""Settings with which pgdyno finds and parses the log of its own servers."""
SECRET_SETTINGS = frozenset({"primary_conninfo", "ssl_passphrase_command"})
"""Settings that may contain a password, which must not be stored in a record or in a tuning's journal."""
ARCHIVE_SETTINGS = frozenset({"archive_cleanup_command", "archive_command", "recovery_end_command", "restore_command"})
"""Commands of the user's in which a server of the user's may have a password, or a key of the archive."""
NOT_RECORDED = "(not recorded)"
"""What a record has in place of the value of such a setting."""
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


class StudyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a study file."""


class QueryMode(enum.Enum):
    """Protocol with which pgbench sends queries (option -M)."""

    SIMPLE = "simple"
    EXTENDED = "extended"
    PREPARED = "prepared"


class CacheState(enum.Enum):
    """State of the caches when a trial begins."""

    WARM = "warm"
    """The server has read tables and indexes."""
    COLD = "cold"
    """Neither the server's buffers nor the kernel's cache has any of the cluster."""
    ASIS = "asis"
    """The server's buffers are empty; the kernel's cache has what restoring left there."""


def check_name(name: str) -> None:
    """Refuse the name of a variant or workload that is empty, or more than a line of printable text.

    Raises:
        ValueError: The name is refused.
    """
    if not (name.strip() and name.isprintable()):
        raise ValueError(f"name {name!r} is not one line of text")


def check_setting_name(name: str) -> None:
    """Refuse an invalid name, a setting that pgdyno's own servers need, or a secret.

    Raises:
        ValueError: The name is refused.
    """
    if not _SETTING_NAME.fullmatch(name):
        raise ValueError(f"settings {name!r} is not the name of a setting")
    if name.lower() in PLACE_SETTINGS | LOG_PLACE_SETTINGS:
        raise ValueError(f"settings {name} is set by pgdyno for its own clusters")
    if name.lower() in SECRET_SETTINGS:
        raise ValueError(f"settings {name} may hold a password, which must not get into a record")


def check_finite(name: str, value: SettingValue) -> None:
    """Refuse a number that is infinite or none at all, which the JSON of a record cannot hold.

    Raises:
        ValueError: The value is refused.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} {value} is not finite: write it as text, '{value}'")


def make_printable(text: str) -> str:
    """Return a text as one line, in which other characters, such as tabs in the name of a file, are escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Refuse a value outside [low, high].

    Raises:
        ValueError: The value is outside.
    """
    if not low <= value <= high:
        raise ValueError(f"{name} {value} is not within {low} to {high}")


def check_above_0(name: str, value: float | None) -> None:
    """Refuse a value that is not above 0 or not finite; None is allowed.

    Raises:
        ValueError: The value is refused.
    """
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{name} {value} is not above 0")


def check_share(name: str, text: str, low: float, high: float) -> float:
    """Read a share such as `3%`.

    Raises:
        ValueError: It is not a percentage, or outside [low, high].
    """
    number, sign, rest = text.strip().partition("%")
    try:
        share = float(number) / 100.0 if sign and not rest else None
    except ValueError:
        share = None
    if share is None:
        raise ValueError(f"{name} {text!r} is not a percentage such as 3%")
    if not low <= share <= high:
        raise ValueError(f"{name} {text} is not within {low * 100:g}% to {high * 100:g}%")
    return share


def split_weight(text: str) -> tuple[str, int]:
    """Split a script and its weight in pgbench's notation, `pay.sql@3`; without a weight it is 1.

    Raises:
        ValueError: What follows the last `@` is not a whole number.
    """
    name, at, weight = text.rpartition("@")
    if not at:
        return text, 1
    if not (weight.isascii() and weight.isdigit()) or not name:
        raise ValueError(f"scripts {text!r}: what follows @ is a weight, a whole number")
    return name, int(weight)
