"""`--server-host` without `--dsn`, and `pgdyno on`: run a whole command on a machine that is reached by ssh."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError, StepFailedError, why
from pgdyno.record.far import FAR_FILE, FarRecord, write_far
from pgdyno.record.store import RECORD_FILE, RecordStore
from pgdyno.report.format import format_bytes
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over.carry import Carried, carry
from pgdyno.run.over.command import Began, Ended, FarCommand, Order, running
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.read import read_study

_RECORDS = Path("pgdyno-records")
_CARDS = "pgdyno-disks"
_BRINGING = ".bringing-"
_WITH_RECORD = ("bench", "compare", "sweep", "run")
COMMANDS = (*_WITH_RECORD, "check", "clean", "disk", "plan", "restore", "tune")
"""What can be run on another machine."""
_WITH_STUDY = ("check", "plan", "run")
_REFUSED = {
    "--live": "watch it from here when the record is home: `pgdyno watch RECORD`",
    "--listen": "leave it out",
    "--metrics-port": "leave it out",
    "--load-host": "the load comes from the server's own machine; for load hosts, name a server of yours with --dsn",
    "--server-host": "name the machine once",
    "--junit": "write it from the record when that is home: `pgdyno report RECORD --fail-if slower --junit FILE`",
    "--bmf": "write it from the record when that is home: `pgdyno report RECORD --bmf FILE`",
}
_WEIGHT = re.compile(r"@\d+$")
_MOST_CARRIED_BYTES = 16 << 20
_CARRYING_S = 30.0


def make_entry(named: str) -> HostEntry:
    """Return the machine that is named as for ssh.

    Raises:
        SpecError: It is no ssh destination.
    """
    try:
        return HostEntry(role=HostRole.SERVER, ssh=named)
    except ValueError as exc:
        raise SpecError(str(exc)) from exc


def read_order(words: Sequence[str]) -> Order:
    """Return what is to be run there for a command line: with the files that it names, and the record that comes home.

    Args:
        words: What follows the program's name, and what would be typed on that machine.

    Raises:
        SpecError: The command, an option or a file cannot be used there.
    """
    command = words[0] if words else ""
    if command not in COMMANDS:
        raise SpecError(
            f"`{command}` is not run on another machine" if command else "no command is named",
            hint=f"one of {', '.join(COMMANDS)}: for example `pgdyno on db1 check`",
        )
    _refuse_options(words)
    files = dict(_find_files(words[1:]))
    if command in _WITH_STUDY:
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
            raise SpecError("--out does not work on another machine here", hint=f"cards come home into {_CARDS}")
        return Order(words=tuple(words), files=files, result=_CARDS if command == "disk" else None)
    if out is None:
        made = f"{_RECORDS}/{local_now():%Y%m%d-%H%M%S}-{command}"
        return Order(words=(*words, "--out", made), files=files, result=made)
    _check_inside("--out", out)
    RecordStore(Path(out)).check_new()
    return Order(words=tuple(words), files=files, result=out)


def run_over(entry: HostEntry, order: Order, *, ui: Ui, before_output: Callable[[], None]) -> int:
    """Carry pgdyno to a machine, run a command there, bring home what it has made, and return its exit code.

    Args:
        entry: The machine.
        order: The command.
        ui: Shows the progress of carrying.
        before_output: Called before the command's own output appears.

    Raises:
        HostError: The machine is not reached, or pgdyno does not run there.
        StepFailedError: The link is lost; pgdyno then stops there by itself.
    """
    with open_link(entry) as link:
        carried = _carry(link, ui)
        before_output()
        return _run(link, carried, order, None if order.result is None else Path(order.result))


def resume_over(
    store: RecordStore, far: FarRecord, options: Sequence[str], *, ui: Ui, before_output: Callable[[], None]
) -> int:
    """Go on with a study on the machine where it was begun; see `run_over`."""
    _refuse_options(options)
    order = Order(
        words=("resume", far.record, *options),
        files={} if far.folder is not None else _list_record(store.path, far.record),
        folder=far.folder,
        result=far.record,
    )
    with store.locked(), open_link(make_entry(far.ssh)) as link:
        carried = _carry(link, ui)
        before_output()
        return _run(link, carried, order, store.path)


def _list_record(record: Path, there: str) -> Mapping[str, Path]:
    # Without the note that it is made elsewhere: it is made there.
    paths = [path for path in record.rglob("*") if path.is_file() and path != record / FAR_FILE]
    return {f"{there}/{path.relative_to(record)}": path for path in paths}


def _refuse_options(words: Sequence[str]) -> None:
    options = {word.partition("=")[0] for word in words}
    for option, hint in _REFUSED.items():
        if option in options:
            raise SpecError(f"{option} does not work with a command on another machine", hint=hint)


def _carry(link: SshLink, ui: Ui) -> Carried:
    is_shown = False

    def tell(text: str) -> None:
        nonlocal is_shown
        if not is_shown:
            is_shown = True
            ui.announce([f"pgdyno is carried to {link.destination}, once for each version"], total_s=_CARRYING_S)
            ui.begin_step("carry", predicted_s=_CARRYING_S)
        ui.show_activity(text)

    carried = carry(link, tell=tell)
    if is_shown:
        sent = format_bytes(carried.sent_bytes)
        ui.end_step(f"{sent} through ssh, to {Path(carried.program).parent}; Python {carried.python} runs it")
    return carried


def _run(link: SshLink, carried: Carried, order: Order, home: Path | None) -> int:
    """Run it, and bring its result home to a path."""
    note: FarRecord | None = None

    def begin(began: Began) -> None:
        """Put what the record begins with where it will lie, so that it can be resumed from here whatever happens."""
        nonlocal note
        if home is None or order.result is None:
            return
        note = FarRecord(ssh=link.destination, folder=began.folder, record=order.result)
        if home.exists():
            write_far(home, note)
        else:
            _write_stub(home, note, began.files)
            stack.enter_context(RecordStore(home).locked())

    with ExitStack() as stack, running(link, carried, order) as command:
        try:
            ended = command.run(began=begin)
            if home is not None:
                _take_home(command, ended, home, note)
            if home is None or note is None or not ended.has_result:
                command.remove()
            elif RecordStore(home).read_record().is_ended:
                # All of it is here: that comes first.
                write_far(home, msgspec.structs.replace(note, folder=None))
                command.remove()
        except StepFailedError as error:
            if note is not None:
                error.hint = (
                    "pgdyno there stops by itself within a minute or two, and puts settings back;"
                    f" `pgdyno resume {home}` goes on"
                )
            raise
        return ended.code


def _take_home(command: FarCommand, ended: Ended, home: Path, note: FarRecord | None) -> None:
    if ended.has_result:
        _bring_home(command, home, note)
    elif note is not None and not RecordStore(home).has_trials:
        # The study was refused before its first trial, and there, too, its record is removed.
        RecordStore(home).remove()


def _write_stub(home: Path, note: FarRecord, files: Mapping[str, str]) -> None:
    try:
        (home / "trials").mkdir(parents=True)
        write_far(home, note)
        # A folder is a record when it has this file.
        for name in sorted(files, key=lambda name: name == RECORD_FILE):
            (home / name).write_text(files[name], encoding="utf-8")
    except OSError as exc:
        raise StepFailedError(f"cannot write a record to {home}", detail=why(exc)) from exc


def _bring_home(command: FarCommand, home: Path, note: FarRecord | None) -> None:
    """Fetch a result to a temporary name, and put it in its place when it is whole."""
    parent = home.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    remove_stale_folders(parent, _BRINGING)
    part = parent / f"{name_of_this_process(_BRINGING)}x"
    try:
        command.fetch(part / "new")
        if note is None:
            home.mkdir(exist_ok=True)
            for card in (part / "new").iterdir():
                card.replace(home / card.name)
            return
        write_far(part / "new", note)
        # What was there is older: it is of the same study.
        if home.exists():
            home.rename(part / "old")
        (part / "new").rename(home)
        os.sync()
    except OSError as exc:
        raise StepFailedError(f"cannot write what comes home to {home}", detail=why(exc)) from exc
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _find_out(words: Sequence[str]) -> str | None:
    for place, word in enumerate(words):
        if word == "--out" and place + 1 < len(words):
            return words[place + 1]
        if word.startswith("--out="):
            return word.partition("=")[2]
    return None


def _find_files(words: Sequence[str]) -> Mapping[str, Path]:
    """Return the files here that words name by a relative path; an absolute one is of that machine."""
    found = {}
    for word in words:
        for name in (word, word.partition("=")[2], _WEIGHT.sub("", word)):
            path = Path(name)
            if name and not path.is_absolute() and path.is_file():
                _check_inside(name, name)
                found[os.path.normpath(name)] = path
    return found


def _find_scripts(study: Path) -> Mapping[str, Path]:
    """Return the files that a study names, by their paths relative to this folder."""
    asked, here = read_study(study), Path.cwd()
    scripts = [one.weighted_scripts for one in asked.workload] + [one.weighted_scripts for one in asked.variant]
    named = [name for weighted in scripts for name, _ in weighted]
    named += [asked.data.init] if asked.data.init is not None else []
    found = {}
    for name in named:
        if Path(name).is_file():
            relative = os.path.relpath(Path(name).resolve(), here)
            _check_inside(f"{study}: {name}", relative)
            found[relative] = Path(name)
    return found


def _check_inside(what: str, path: str) -> None:
    if Path(path).is_absolute() or os.path.normpath(path).startswith(".."):
        raise SpecError(
            f"{what} lies outside of this folder",
            detail="what a command on another machine reads and writes here lies in this folder, or below it",
            hint="call pgdyno in a folder that holds it, and name it by a relative path",
        )
