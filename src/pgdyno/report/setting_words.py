"""Format settings as people and files write them, with units and quotes where they are needed."""

from __future__ import annotations

import re

from pgdyno.facts.gucs import find_guc, is_quoted_list, show_mode
from pgdyno.spec.conf import quote_value
from pgdyno.units import show_in_unit

# Source: PostgreSQL 18 src/backend/utils/misc/guc-file.l: values that need no quotes in the file.
_PLAIN = re.compile(r"-?[A-Za-z0-9_.:/]+")


def show_setting(name: str, raw: str, major: int) -> str:
    """Format a value as SHOW prints it: 16384 of shared_buffers is `128MB`, 416 of log_file_mode is `0640`.

    Args:
        name: The setting's name; the values of unknown settings are returned unchanged.
        raw: The value as in pg_settings.setting, or with a unit.
        major: The server's major version.
    """
    guc = find_guc(name, major)
    return show_mode(name, show_in_unit(raw, None if guc is None else guc.unit))


def format_conf(name: str, value: str) -> str:
    """Format a line of postgresql.conf."""
    return f"{name} = {value if _PLAIN.fullmatch(value) else quote_value(value)}"


def format_alter_system(name: str, value: str) -> str:
    """Format an ALTER SYSTEM command."""
    if not value and name.lower().endswith("_libraries"):
        # It writes '' as a list of one library without a name, which keeps the server or its sessions from starting.
        return f"ALTER SYSTEM RESET {name}; -- for '' leave it out of postgresql.conf, too: ALTER SYSTEM writes no empty list"
    parts = [part.strip() for part in value.split(",")] if is_quoted_list(name) else [value]
    return f"ALTER SYSTEM SET {name} = {', '.join(_quote(part) for part in parts)};"


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
