"""What every table of a study file shares: its base, and the checks that several tables make."""

from __future__ import annotations

import enum
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
"""They decide where a server is and who may enter: with them changed it would not be found again, or another be."""
LOG_PLACE_SETTINGS = frozenset({"lc_messages", "log_destination", "log_line_prefix", "logging_collector"})
"""By them pgdyno finds and understands the log of a server of its own."""
SECRET_SETTINGS = frozenset({"primary_conninfo", "ssl_passphrase_command"})
"""They may hold a password, and what was set is kept: in a study's record, in the journal of a tuning."""
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


class StudyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a study file."""


class QueryMode(enum.Enum):
    """How pgbench sends queries (its -M)."""

    SIMPLE = "simple"
    EXTENDED = "extended"
    PREPARED = "prepared"


def check_setting_name(name: str) -> None:
    """Refuse what is no setting, what a server of pgdyno's own has by itself, or a secret.

    Raises:
        ValueError: It is one of those.
    """
    if not _SETTING_NAME.fullmatch(name):
        raise ValueError(f"settings {name!r} is no name of a setting")
    if name.lower() in PLACE_SETTINGS | LOG_PLACE_SETTINGS:
        raise ValueError(f"settings {name} is pgdyno's own: its clusters are private")
    if name.lower() in SECRET_SETTINGS:
        raise ValueError(f"settings {name} may hold a password, which must not get into a record")


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Refuse a value outside [low, high].

    Raises:
        ValueError: It is outside.
    """
    if not low <= value <= high:
        raise ValueError(f"{name} {value} is not within {low} to {high}")


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
