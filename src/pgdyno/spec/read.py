"""Reads study files. Every error names the file, the line and the key, and what would be right.

Refuses unknown keys (with the nearest known one), wrong types and values out of range; reads nothing but TOML.
"""

from __future__ import annotations

import difflib
import enum
import os
import re
import tomllib
import typing
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.search import SearchSpec
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec, ServerSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import ExperimentSpec, SweepSpec, VariantSpec

_FIELDS = [
    field
    for table in (
        Study,
        ServerSpec,
        DataSpec,
        WorkloadSpec,
        TrialsSpec,
        VariantSpec,
        SweepSpec,
        SearchSpec,
        ExperimentSpec,
    )
    for field in msgspec.structs.fields(table)
]
_KEYS = sorted({field.name for field in _FIELDS})
_ENUMS = {
    field.name: kind
    for field in _FIELDS
    for kind in (typing.get_args(field.type) or (field.type,))
    if isinstance(kind, type) and issubclass(kind, enum.Enum)
}
# Options of the command line that are not called as their key is.
_OPTIONS = {
    "rate_tps": "--rate",
    "settings": "--set",
    "scripts": "--workload",
    "name": "--workload",
    "resolution": "--detect",
    # Said in the axis of a sweep.
    "latency": "latency",
    "percentile": "percentile",
    "": "bench",
}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_EXPECTED = re.compile(r"expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`")
_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")


def read_study(path: Path) -> Study:
    """Read a study file; scripts that are files become absolute paths.

    Raises:
        SpecError: The file cannot be read, is no TOML, or says something pgdyno does not understand.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise SpecError(
            f"cannot read the study {path}",
            detail=exc.strerror or str(exc),
            hint="`pgdyno run studies/tpcb-like.toml` runs a shipped one",
        ) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint="a study is a TOML file") from exc
    return parse_study(text, source=str(path), folder=path.parent)


def parse_study(text: str, *, source: str, folder: Path) -> Study:
    """Parse a study's text.

    Args:
        text: TOML.
        source: What errors call it.
        folder: Where script files are looked up.

    Raises:
        SpecError: As for `read_study`.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{source} is not valid TOML", detail=str(exc), hint='strings need quotes: duration = "30s"'
        ) from exc
    return make_study(raw, source=source, folder=folder, text=text)


def make_study(raw: dict[str, object], *, source: str, folder: Path, text: str = "") -> Study:
    """Make a study of a TOML document's tables, or of what a command line said in their place.

    Args:
        raw: Tables and keys.
        source: What errors call it; of a command line, the command.
        folder: Where script files are looked up.
        text: The TOML text, so that errors can name lines.

    Raises:
        SpecError: Something in it is not understood.
    """
    try:
        study = msgspec.convert(raw, Study)
    except msgspec.ValidationError as exc:
        raise _spec_error(str(exc), text=text, source=source) from exc
    return msgspec.structs.replace(study, workload=tuple(_resolve_scripts(w, folder) for w in study.workload))


def format_study(study: Study) -> str:
    """The study as TOML, only with what differs from the defaults; `parse_study` gives the same study back."""
    return msgspec.toml.encode(_without_defaults(study)).decode()


def _without_defaults(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        kept = {}
        for field in msgspec.structs.fields(value):
            item = getattr(value, field.name)
            if item is not None and (field.required or item != field.default):
                kept[field.name] = _without_defaults(item)
        return kept
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    return msgspec.to_builtins(value)


def _resolve_scripts(workload: WorkloadSpec, folder: Path) -> WorkloadSpec:
    resolved = []
    for name, weight in workload.weighted_scripts:
        if name in BUILTIN_SCRIPTS:
            resolved.append(f"{name}@{weight}")
            continue
        script = (folder / name).absolute()
        if not os.path.isfile(script):  # noqa: PTH113 - False, not an error, in a folder that is closed to us
            nearest = difflib.get_close_matches(name, BUILTIN_SCRIPTS, n=1)
            raise SpecError(
                f"workload {workload.name}: there is no script {name}",
                detail=f"looked for {script}; built-in are {', '.join(BUILTIN_SCRIPTS)}",
                hint=f"did you mean {nearest[0]}?" if nearest else "a relative path counts from the folder named above",
            )
        resolved.append(f"{script}@{weight}")
    return msgspec.structs.replace(workload, scripts=tuple(resolved))


def _spec_error(message: str, *, text: str, source: str) -> SpecError:
    path_match = _PATH.search(message)
    path = path_match["path"].lstrip(".") if path_match else ""
    fact = _EXPECTED.sub(_say_types, _PATH.sub("", message))
    hint = "studies/template.toml explains every key"
    unknown = _UNKNOWN.search(fact)
    if unknown:
        path = f"{path}.{unknown['key']}".lstrip(".")
        fact = f"unknown key {unknown['key']}"
        nearest = difflib.get_close_matches(unknown["key"], _KEYS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else hint
    # What a value is checked for begins with its key; msgspec names only the table.
    first = fact.split(maxsplit=1)[0]
    if first in _KEYS and path.rpartition(".")[2] != first:
        path = f"{path}.{first}".lstrip(".")
    key = path.rpartition(".")[2]
    if key in _ENUMS:
        hint = f"one of {', '.join(member.value for member in _ENUMS[key])}"
    if not text:
        option = _OPTIONS.get(key, f"--{key.replace('_', '-')}")
        said = fact.removeprefix(f"{key} ")
        command = source if source.startswith("pgdyno ") else "pgdyno bench"
        hint = hint if key in _ENUMS else f"`{command} --help` explains every option"
        return SpecError(f"{option}: {said[:1].lower()}{said[1:]}", hint=hint)
    line = find_line(text, path)
    where = f"{source}, line {line}" if line else source
    detail = f"key {path}" if path else ""
    return SpecError(f"{where}: {fact[:1].lower()}{fact[1:]}", detail=detail, hint=hint)


def _say_types(found: re.Match[str]) -> str:
    """A mismatch of types as a person would say it."""
    wanted = [_TYPES.get(name, name) for name in found["wanted"].split(" | ") if name != "null"]
    return f"expected {' or '.join(wanted)}, got {_TYPES.get(found['got'], found['got'])}"


def find_line(text: str, path: str) -> int | None:
    """The 1-based line of a dotted key such as `workload[1].clients` in a TOML text; its table's when it has none.

    Reads plain `[table]`, `[[table]]`, `[table.key]` and `key =` lines, which is how studies are written; None when
    nothing matches.
    """
    head, _, rest = path.partition(".")
    found = re.fullmatch(r"([^\[]+)(?:\[(\d+)\])?", head)
    if found is None:
        return None
    name, index = found[1], int(found[2] or 0)
    key = re.split(r"[.\[]", rest, maxsplit=1)[0]
    count: dict[str, int] = {}
    table_line, is_top, is_inside = None, True, False
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[{1,2}\s*([^\]\s.]+)(?:\.([^\]\s.]+))?", line)
        if header is None:
            wanted = name if is_top else key if is_inside else ""
            if not wanted or not re.match(rf"\s*[\"']?{re.escape(wanted)}[\"']?\s*[=.]", line):
                continue
            return number
        table, sub = header.groups()
        if sub is None:
            count[table] = count.get(table, -1) + 1
        is_top, is_own = False, table == name and max(0, count.get(table, -1)) == index
        is_inside = is_own and sub is None
        if is_own and sub is not None and sub == key:
            return number
        if is_inside:
            table_line = number
    return table_line
