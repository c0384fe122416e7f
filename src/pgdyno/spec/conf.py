"""Read a file of settings in the format of postgresql.conf, as a variant of a comparison.

Included files are not read. Settings that would remove a server from pgdyno's control are refused. All refused lines
are reported in one error, because the file of a running server usually has several.
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
    """Quote a value for postgresql.conf, in one line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


def read_value(text: str) -> str:
    """Return the value that a text in postgresql.conf stands for, with or without quotes."""
    return _ESCAPE.sub(_read_escape, text[1:-1]) if text.startswith("'") else text


def read_conf(text: str, folder: Path) -> dict[str, SettingValue]:
    """Read the settings of a file; the last line of a repeated name counts, as in PostgreSQL.

    Args:
        text: The path of the file as the user wrote it.
        folder: The folder for a relative path.

    Raises:
        SpecError: The file cannot be read, a line is not a setting, or a setting is refused.
    """
    try:
        content = (folder / text).read_text(encoding="utf-8-sig")
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
        # Names are case-insensitive.
        name = found["name"].lower()
        reason = _find_refusal(name)
        if reason is not None:
            refused.append(f"line {number}: {reason}")
        settings[name] = read_value(found["value"])
    if refused:
        raise SpecError(
            f"{text} has lines that a variant cannot have",
            detail="\n".join(refused),
            hint="remove these lines from a copy",
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
