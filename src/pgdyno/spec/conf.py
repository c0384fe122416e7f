"""Reads a file with settings as in postgresql.conf: a variant of a comparison.

Included files are not read, and what would take a server out of pgdyno's hands is refused, all of it at once: a file
of a running server has some of both.
"""

from __future__ import annotations

import re
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.spec.table import SettingValue, check_setting_name

# Source: PostgreSQL 18 src/backend/utils/misc/guc-file.l.
_LINE = re.compile(
    r"""(?P<name>[A-Za-z_\x80-\U0010ffff][\w$]*(?:\.[A-Za-z_\x80-\U0010ffff][\w$]*)*)
        \s*(?:=\s*|\s)
        (?P<value>'(?:[^'\\]|''|\\.)*'|[^\s\#'=]+)
        \s*(?:\#.*)?""",
    re.VERBOSE,
)
# Source: the same file, DeescapeQuotedString().
_ESCAPE = re.compile(r"''|\\(?P<octal>[0-7]{1,3})|\\(?P<letter>.)")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_INCLUDES = frozenset({"include", "include_dir", "include_if_exists"})


def quote_value(value: SettingValue) -> str:
    """A value as postgresql.conf takes it, in one line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


def read_value(text: str) -> str:
    """A value that stands in postgresql.conf, with or without quotes."""
    return _ESCAPE.sub(_read_escape, text[1:-1]) if text.startswith("'") else text


def read_conf(text: str, folder: Path) -> dict[str, SettingValue]:
    """The settings of a file; of a name that comes twice the last line counts, as for PostgreSQL.

    Args:
        text: The file as it was named.
        folder: Where it is looked up.

    Raises:
        SpecError: It cannot be read, a line is no setting, or pgdyno cannot take one of them.
    """
    try:
        content = (folder / text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(
            f"cannot read the variant {text}",
            detail=exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc),
            hint="a variant is `stock` or a file with settings as in postgresql.conf",
        ) from exc
    settings: dict[str, SettingValue] = {}
    refused = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise SpecError(f"{text}, line {number}: not a setting", detail=line, hint="for example commit_delay = 50")
        # Names are the same in any case.
        name = found["name"].lower()
        reason = _find_refusal(name)
        if reason is not None:
            refused.append(f"line {number}: {reason}")
        settings[name] = read_value(found["value"])
    if refused:
        raise SpecError(
            f"{text} has what a variant cannot have", detail="\n".join(refused), hint="leave these lines out of a copy"
        )
    return settings


def _find_refusal(name: str) -> str | None:
    if name in _INCLUDES:
        return f"{name}: included files are not read"
    try:
        check_setting_name(name)
    except ValueError as exc:
        return str(exc).removeprefix("settings ")
    return None


def _read_escape(found: re.Match[str]) -> str:
    if found["octal"]:
        return chr(int(found["octal"], 8) % 256)
    if found["letter"]:
        return _LETTERS.get(found["letter"], found["letter"])
    return "'"
