"""Read the command line that another machine runs: which files go along, and which record comes home."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.record.device.disk_card import CARDS
from pgdyno.record.far import FarRecord
from pgdyno.record.new_record import choose_record
from pgdyno.record.store import RecordStore
from pgdyno.report.format import format_bytes
from pgdyno.run.host.clock import local_now
from pgdyno.run.over.command import Order
from pgdyno.spec.hosts import HostEntry, HostRole, list_option_values, make_named_hosts, read_hosts
from pgdyno.spec.study import Study

RESUME = "resume"
_WITH_RECORD = ("bench", "compare", "sweep", "run")
COMMANDS = (*_WITH_RECORD, "check", "clean", "disk", "plan", "restore", "tune")
"""What can be run on another machine."""
_WITH_STUDY = ("check", "plan", "run")
_REFUSED = {
    "--live": "watch it from here when the record is home: `pgdyno watch RECORD`",
    "--listen": "leave it out",
    "--metrics-port": "leave it out",
    "--server-host": "name the machine once",
    "--junit": "write it from the record when that is home: `pgdyno report RECORD --fail-if slower --junit FILE`",
    "--bmf": "write it from the record when that is home: `pgdyno report RECORD --bmf FILE`",
}
_WEIGHT = re.compile(r"@\d+$")
_OF_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_CARRIED_BYTES = 16 << 20


def make_entry(named: str) -> HostEntry:
    """Return the machine that is named as for ssh.

    Raises:
        SpecError: It is no ssh destination.
    """
    try:
        return HostEntry(role=HostRole.SERVER, ssh=named)
    except ValueError as exc:
        raise SpecError(str(exc)) from exc


def find_entry(far: FarRecord, study: Study) -> HostEntry:
    """Return the machine where a record was made, with what its study says of it, such as the Python there.

    Raises:
        SpecError: It is no ssh destination.
    """
    named = study.server_host
    return named[1] if named is not None and named[1].ssh == far.ssh else make_entry(far.ssh)


def read_load_hosts(words: Sequence[str]) -> dict[str, HostEntry]:
    """Return the load hosts that a command line names, or the study that it runs; they are reached from here.

    Raises:
        SpecError: One is no ssh destination, or the study cannot be read.
    """
    if words[:1] == ["run"]:
        studies = [Path(word) for word in words[1:] if word.endswith(".toml") and _is_file_here(word, Path())]
        hosts = [read_hosts(path) for path in studies]
        return {name: one for found in hosts for name, one in found.items() if one.role is HostRole.LOAD}
    return make_named_hosts(None, list(list_option_values(words, "--load-host")))


def read_order(words: Sequence[str], machine: str) -> Order:
    """Return what is to be run there for a command line: with the files that it names, and the record that comes home.

    Args:
        words: What follows the program's name, and what would be typed on that machine.
        machine: That machine as for ssh, which a record is named after.

    Raises:
        SpecError: The command, an option or a file cannot be used there.
    """
    command = words[0] if words else ""
    if command not in COMMANDS:
        raise SpecError(
            f"`{command}` is not run on another machine" if command else "no command is named",
            hint="`pgdyno resume RECORD` continues there by itself: the record knows its machine"
            if command == RESUME
            else f"one of {', '.join(COMMANDS)}: for example `pgdyno on db1 check`",
        )
    refuse_options(words)
    files = dict(_find_files(words[1:]))
    if command in _WITH_STUDY:
        _check_studies(words[1:])
        for path in [path for path in files.values() if path.suffix == ".toml"]:
            files |= _find_scripts(path)
    size_bytes = sum(path.stat().st_size for path in files.values())
    if size_bytes > _MOST_CARRIED_BYTES:
        raise SpecError(
            f"the files that the command names have {format_bytes(size_bytes)}",
            detail=", ".join(files),
            hint=f"at most {format_bytes(_MOST_CARRIED_BYTES)} go along; copy larger ones there, and name them by their absolute paths",
        )
    out = _find_out(words)
    if command not in _WITH_RECORD:
        if out is not None:
            raise SpecError("--out does not work on another machine here", hint=f"cards come home into {CARDS}")
        return Order(words=tuple(words), files=files, result=str(CARDS) if command == "disk" else None)
    if out is None:
        made = str(choose_record(name_far_record(command, machine), at=local_now()))
        return Order(words=(*words, "--out", made), files=files, result=made)
    _check_inside("--out", out)
    RecordStore(Path(out)).check_new()
    return Order(words=tuple(words), files=files, result=out)


def name_far_record(command: str, machine: str) -> str:
    """Return the name of the record that a command makes on a machine; several may begin in the same second."""
    return f"{command}-{_OF_NO_NAME.sub('-', machine)}"


def refuse_options(words: Sequence[str]) -> None:
    """Refuse options that do not work with a command on another machine.

    Raises:
        SpecError: One is among the words.
    """
    options = {word.partition("=")[0] for word in words}
    for option, hint in _REFUSED.items():
        if option in options:
            raise SpecError(f"{option} does not work with a command on another machine", hint=hint)


def _find_out(words: Sequence[str]) -> str | None:
    # Of several, the command there takes the last one.
    *_, out = None, *list_option_values(words, "--out")
    return None if out is None else os.path.normpath(out)


def _find_files(words: Sequence[str]) -> Mapping[str, Path]:
    """Return the files here that words name by a relative path; an absolute one is of that machine."""
    found = {}
    for word in words:
        plain = _WEIGHT.sub("", word)
        for name in (word, word.partition("=")[2], plain, plain.partition("=")[2]):
            if _is_file_here(name, Path()):
                _check_inside(name, name)
                found[os.path.normpath(name)] = Path(name)
    return found


def _check_studies(words: Sequence[str]) -> None:
    """Refuse a study that is not here before pgdyno is carried there, where it would be missed as well."""
    for before, word in pairwise(("", *words)):
        is_study = word.endswith(".toml") and not word.startswith("-") and before != "--out"
        if is_study and not Path(word).is_absolute() and not _is_file_here(word, Path()):
            raise SpecError(
                f"there is no study {word} here",
                hint="a relative path is of this machine, and the file goes along; name one that lies there by its absolute path",
            )


def _find_scripts(study: Path) -> Mapping[str, Path]:
    """Return the files that a study names, by their paths relative to this folder: every string may be one.

    A study that is damaged is refused there.
    """
    try:
        words = _find_strings(tomllib.loads(study.read_text(encoding="utf-8-sig")))
    except ValueError:
        return {}
    found = {}
    for name in (_WEIGHT.sub("", word) for word in words):
        if _is_file_here(name, study.parent):
            path = os.path.normpath(study.parent / name)
            _check_inside(f"{study}: {name}", path)
            found[path] = study.parent / name
    return found


def _find_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _find_strings(item)


def _is_file_here(name: str, folder: Path) -> bool:
    # Unlike a Path, it returns False for a text that is too long for a name, or in a folder without permission.
    return name != "" and not Path(name).is_absolute() and os.path.isfile(folder / name)  # noqa: PTH113


def _check_inside(what: str, path: str) -> None:
    if Path(path).is_absolute() or os.path.normpath(path).startswith(".."):
        raise SpecError(
            f"{what} lies outside of this folder",
            detail="what a command on another machine reads and writes here lies in this folder, or below it",
            hint="call pgdyno in a folder that holds it, and name it by a relative path",
        )
