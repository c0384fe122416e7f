"""Read study files. Every error names the file, the line, the key, and what would be valid.

Unknown keys are refused with a suggestion, as are wrong types and values out of range. Only TOML is read.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.spec.complaint import Complaint, find_line, read_complaint, suggest_toml
from pgdyno.spec.hosts import make_hosts
from pgdyno.spec.initdb import is_in_whole_mb
from pgdyno.spec.pooler import check_poolers
from pgdyno.spec.shipped import find_shipped, suggest_shipped
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec, ServerSpec, Study, WorkloadSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.unused import check_used
from pgdyno.spec.variant import OF_FOLDER, WITH_DATA, SweepSpec, VariantSpec, is_server_folder


class CommandUse(NamedTuple):
    """What a command of the user's is for, and an option with one."""

    words: str
    example: str


APPLY_USE = CommandUse("to apply settings with", "--apply-with ./apply.sh")
RESTORE_USE = CommandUse("to restore the data with", "--restore-command ./restore.sh")
# Command-line options whose name differs from the key.
_OPTIONS = {
    "rate_tps": "--rate",
    "settings": "--set",
    "scripts": "--workload",
    "name": "--workload",
    "resolution": "--detect",
    "how": "--failover",
    "poolers": "--endpoint",
    # Part of a sweep's axis, or of --initdb.
    "latency": "latency",
    "percentile": "percentile",
    "wal_segment_size": "wal_segment_size",
    # Tables that options make up.
    "workload": "--workload",
    "data": "--init",
}
_HINTS = {"data": "add --workload FILE for each script"}
_OF_WORKLOADS = re.compile(
    r"(?:no \[\[workload\]\]: )?(?P<said>(?:nothing to measure|several workloads are named) ?.*)"
)
_INDEX = re.compile(r"\[\d+\]$")
_HOST_TABLE = re.compile(r"\s*\[\s*host\s*\.")


def read_study(path: Path, *, is_here: bool = True, is_of_record: bool = False) -> Study:
    """Read a study file, the user's or a shipped one, and make the paths of its files, folders and command absolute.

    Args:
        path: The file, or the name of a shipped study.
        is_here: Whether it runs on this machine: else its commands are left as they are, and looked up there.
        is_of_record: Whether it is a record's: those of earlier versions have keys without effect, sizes that were rounded,
            and sweeps over clients at a fixed rate.

    Raises:
        SpecError: The file cannot be read, is not TOML, or has invalid keys or values, or keys without effect.
    """
    path = find_shipped(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise SpecError(
            f"cannot read the study {path}",
            detail=exc.strerror or str(exc),
            hint=suggest_shipped(path)
            or "`pgdyno studies` lists those that pgdyno ships; `pgdyno run tpcb-like` runs one of them",
        ) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint="a study is a TOML file") from exc
    study = parse_study(text, source=str(path), folder=path.parent, is_here=is_here, is_of_record=is_of_record)
    if not is_of_record:
        check_used(study, source=str(path), text=text)
    return study


def parse_study(text: str, *, source: str, folder: Path, is_here: bool = True, is_of_record: bool = False) -> Study:
    """Parse a study's text.

    Args:
        text: The TOML text.
        source: Name of the study in errors.
        folder: Folder for relative paths.
        is_here: As for `read_study`.
        is_of_record: As for `read_study`.

    Raises:
        SpecError: As for `read_study`.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{source} is not valid TOML", detail=str(exc), hint=suggest_toml(str(exc), 'duration = "30s"')
        ) from exc
    return make_study(raw, source=source, folder=folder, text=text, is_here=is_here, is_of_record=is_of_record)


def make_study(
    raw: dict[str, object],
    *,
    source: str,
    folder: Path,
    text: str | None = None,
    is_here: bool = True,
    is_of_record: bool = False,
) -> Study:
    """Make a study from the tables of a TOML document, or from the options of a command line.

    Args:
        raw: Tables and keys.
        source: Name of the study in errors; for a command line, the command.
        folder: Folder for relative paths.
        text: The TOML text, so that errors can name lines; None for a command line, so that they name options.
        is_here: As for `read_study`.
        is_of_record: As for `read_study`.

    Raises:
        SpecError: A key or a value is invalid.
    """
    if "hosts" in raw:
        make_hosts(raw["hosts"], source=source, text=text or "")
    if "poolers" in raw:
        check_poolers(raw["poolers"], source=source, text=text or "")
    try:
        study = msgspec.convert(raw, Study)
    except msgspec.ValidationError as exc:
        raise _spec_error(str(exc), text=text, source=source) from exc
    # Records of earlier versions have what is wrong here, which is why the types take it.
    for path, fact in () if is_of_record else _find_wrong(study):
        raise _spec_error(f"{fact} - at `$.{path}`", text=text, source=source)
    server = _resolve_server(study.server, folder, is_here=is_here)
    data = _resolve_data(study.data, folder, is_here=is_here)
    workloads = tuple(_resolve_workload(one, folder) for one in study.workload)
    variants = tuple(_resolve_variant(variant, folder) for variant in study.variant)
    sweeps = tuple(_resolve_levels(sweep, folder) for sweep in study.sweep)
    return msgspec.structs.replace(study, server=server, data=data, workload=workloads, variant=variants, sweep=sweeps)


def _find_wrong(study: Study) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a study although its types take it, with its key."""
    for path, size in _list_segments(study):
        if not is_in_whole_mb(size):
            yield path, f"wal_segment_size {size} is not a power of 2 from 1MB to 1GB"
    variants = ((f"variant[{number}]", variant.settings) for number, variant in enumerate(study.variant))
    for table, settings in (("server", study.server.settings), *variants):
        folded = [name.lower() for name in settings]
        for name in settings:
            if folded.count(name.lower()) > 1:
                yield (
                    f"{table}.settings.{name}",
                    f"settings {name} comes twice: PostgreSQL's names are case-insensitive",
                )
    if any(axis.name == "clients" for axis in study.sweep):
        for number, workload in enumerate(study.workload):
            if workload.rate_tps is not None:
                yield (
                    f"workload[{number}].rate_tps",
                    f"rate_tps {workload.rate_tps:g} decides TPS, whatever the number of clients: a sweep over clients needs a load without it",
                )


def _list_segments(study: Study) -> Iterator[tuple[str, str]]:
    """Yield each size of a WAL segment that a study names, with its key."""
    variants = ((f"variant[{number}]", variant.wal_segment_size) for number, variant in enumerate(study.variant))
    for table, size in (("data", study.data.wal_segment_size), *variants):
        if size is not None:
            yield f"{table}.wal_segment_size", size
    for number, axis in enumerate(study.sweep):
        if axis.name == "wal_segment_size":
            yield from ((f"sweep[{number}].levels", str(level)) for level in axis.levels)


def _resolve_server(server: ServerSpec, folder: Path, *, is_here: bool) -> ServerSpec:
    if server.bindir is not None:
        server = msgspec.structs.replace(server, bindir=_resolve_programs(server.bindir, folder))
    if server.apply is not None and is_here:
        server = msgspec.structs.replace(server, apply=resolve_command(server.apply, folder, APPLY_USE))
    return server


def _resolve_data(data: DataSpec, folder: Path, *, is_here: bool) -> DataSpec:
    places = {
        key: str((folder / named).absolute())
        for key in ("init", "wal_home")
        if (named := getattr(data, key)) is not None
    }
    if data.restore_command is not None and is_here:
        places["restore_command"] = resolve_command(data.restore_command, folder, RESTORE_USE)
    return msgspec.structs.replace(data, **places)


def _resolve_workload(workload: WorkloadSpec, folder: Path) -> WorkloadSpec:
    if not workload.parts:
        scripts = _resolve_scripts(f"workload {workload.name}", workload.weighted_scripts, folder)
        return msgspec.structs.replace(workload, scripts=scripts)
    parts = tuple(
        msgspec.structs.replace(
            part, scripts=_resolve_scripts(f"part {part.name} of {workload.name}", part.weighted_scripts, folder)
        )
        for part in workload.parts
    )
    return msgspec.structs.replace(workload, parts=parts)


def _resolve_variant(variant: VariantSpec, folder: Path) -> VariantSpec:
    variant = _resolve_places(variant, folder)
    if not variant.scripts:
        return variant
    scripts = _resolve_scripts(f"variant {variant.title}", variant.weighted_scripts, folder)
    return msgspec.structs.replace(variant, name=variant.title, scripts=scripts)


def _resolve_places(variant: VariantSpec, folder: Path) -> VariantSpec:
    named = {key: place for key in OF_FOLDER if (place := getattr(variant, key)) is not None}
    places = {key: _resolve_place(key, place, folder) for key, place in named.items()}
    # It is called what the user wrote.
    return variant if places == named else msgspec.structs.replace(variant, name=variant.title, **places)


def _resolve_levels(sweep: SweepSpec, folder: Path) -> SweepSpec:
    if sweep.name not in OF_FOLDER:
        return sweep
    levels = tuple(_resolve_place(sweep.name, level, folder) for level in sweep.levels)
    return msgspec.structs.replace(sweep, levels=levels)


def _resolve_place(key: str, named: SettingValue, folder: Path) -> SettingValue:
    text = str(named)
    if key == "server":
        return _resolve_programs(text, folder) if is_server_folder(text) else named
    return named if (key, text) == ("wal_home", WITH_DATA) else str((folder / text).absolute())


def _resolve_programs(named: str, folder: Path) -> str:
    # The machine that it runs on knows whose home ~ is.
    return named if named.startswith("~") else str((folder / named).absolute())


def resolve_command(text: str, folder: Path, use: CommandUse) -> str:
    """Return a command line whose program is named by an absolute path, or is looked up in PATH.

    Args:
        text: The command line.
        folder: Folder for a relative path of the program.
        use: What the command is for, in errors.

    Raises:
        SpecError: It is empty, its quotes do not match, or there is no such program.
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise SpecError(f"the command {use.words}: {exc}", detail=text, hint="quotes come in pairs") from exc
    if not words:
        raise SpecError(f"the command {use.words} is empty", hint=f"for example {use.example}")
    program = str((folder / words[0]).absolute()) if "/" in words[0] else words[0]
    if shutil.which(program) is None:
        raise SpecError(
            f"there is no program {words[0]} {use.words}",
            detail=f"looked for {program}",
            hint="a script needs the right to be executed (chmod +x); a path without / is looked up in PATH",
        )
    return shlex.join([program, *words[1:]])


def format_study(study: Study) -> str:
    """Format a study as TOML without default values; `parse_study` returns the same study."""
    return msgspec.toml.encode(_without_defaults(study)).decode()


def _without_defaults(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        kept = {}
        for field in msgspec.structs.fields(value):
            item = getattr(value, field.name)
            # An empty table says nothing.
            if item is not None and item != {} and (field.required or item != field.default):
                kept[field.name] = _without_defaults(item)
        return kept
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    return msgspec.to_builtins(value)


def _resolve_scripts(what: str, scripts: tuple[tuple[str, int], ...], folder: Path) -> tuple[str, ...]:
    resolved = []
    for name, weight in scripts:
        if name in BUILTIN_SCRIPTS:
            resolved.append(f"{name}@{weight}")
            continue
        script = (folder / name).absolute()
        if not os.path.isfile(script):  # noqa: PTH113 - returns False, not an error, in a folder without permission
            nearest = difflib.get_close_matches(name, BUILTIN_SCRIPTS, n=1)
            raise SpecError(
                f"{what}: there is no script {name}",
                detail=f"looked for {script}; built-in are {', '.join(BUILTIN_SCRIPTS)}",
                hint=did_you_mean(nearest) if nearest else "a relative path starts at the folder named above",
            )
        resolved.append(f"{script}@{weight}")
    return tuple(resolved)


def _spec_error(message: str, *, text: str | None, source: str) -> SpecError:
    found = read_complaint(message, Study)
    hint = f"did you mean {found.nearest}?" if found.nearest else "`pgdyno studies template` explains every key"
    choices = f"one of {', '.join(found.choices)}" if found.choices else ""
    if text is None:
        command = source if source.startswith("pgdyno ") else "pgdyno bench"
        where, said, key = _name_option(found, command.removeprefix("pgdyno "))
        hint = choices or _HINTS.get(key, f"`{command} --help` explains every option")
        return SpecError(f"{where}: {said}", hint=hint)
    line = find_line(text, found.path)
    if line and found.is_unknown and not found.nearest and _HOST_TABLE.match(text.splitlines()[line - 1]):
        hint = f"did you mean [hosts.{found.key}]? Each machine that ssh reaches has such a table; [host] declares the server's"
    where = f"{source}, line {line}" if line else source
    detail = "" if line or not found.path else f"key {found.path}"
    return SpecError(f"{where}: {found.fact}", detail=detail, hint=choices or hint)


def _name_option(found: Complaint, command: str) -> tuple[str, str, str]:
    """Return the option that a complaint is about, what it says of it, and its key; the command where all options together are wrong."""
    key = _INDEX.sub("", found.key)
    if not key:
        of_workloads = _OF_WORKLOADS.match(found.fact)
        return (command, found.fact, key) if of_workloads is None else (_OPTIONS["workload"], of_workloads["said"], key)
    if key == "data":
        # What is wrong with a combination in [data] begins with one of its keys.
        first = found.fact.partition(" ")[0]
        if first == key:
            return _OPTIONS[key], found.fact, key
        key = first
    said = found.fact.removeprefix(f"{key} ").removeprefix(f"{key}: ")
    return _OPTIONS.get(key, f"--{key.replace('_', '-')}"), said, key
