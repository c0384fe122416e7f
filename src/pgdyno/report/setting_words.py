"""Format settings as people and files write them, with units and quotes where they are needed."""

from __future__ import annotations

import re

from pgdyno.facts.gucs import Guc, VarType, find_guc, is_quoted_list, show_mode
from pgdyno.spec.conf import quote_value

# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, memory_unit_conversion_table and time_unit_conversion_table.
_MEMORY = (("TB", 1024**4), ("GB", 1024**3), ("MB", 1024**2), ("kB", 1024), ("B", 1))
_TIME = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
_SIZES = {"B": 1, "kB": 1024, "8kB": 8192, "MB": 1024**2, "ms": 1, "s": 1000, "min": 60_000}
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
    if guc is None or guc.unit is None or guc.vartype is not VarType.INTEGER or not raw.isdigit() or int(raw) == 0:
        return show_mode(name, raw)
    return _in_largest_unit(int(raw), guc)


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


def _in_largest_unit(number: int, guc: Guc) -> str:
    units = _MEMORY if "B" in (guc.unit or "") else _TIME
    total = number * _SIZES[guc.unit or ""]
    return next(f"{total // size}{unit}" for unit, size in units if total % size == 0)
