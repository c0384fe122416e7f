"""`--server-host` without `--dsn`, and `pgdyno on`: run a whole command on a machine that is reached by ssh."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import ExitCode, InterruptedStudyError, SpecError, StepFailedError, why
from pgdyno.record.far import FAR_FILE, FarRecord, write_far
from pgdyno.record.store import RECORD_FILE, STUDY_FILE, RecordStore
from pgdyno.report.format import format_bytes
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over.carry import Carried, carry
from pgdyno.run.over.command import Began, Ended, FarCommand, Order, running
from pgdyno.spec.hosts import HostEntry, HostRole

_RECORDS = Path("pgdyno-records")
_CARDS = "pgdyno-disks"
_BRINGING = ".bringing-"
_RESUME = "resume"
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
_OF_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_CARRIED_BYTES = 16 << 20
# As a shell says it.
_KILLED_BY = 128
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
            hint="`pgdyno resume RECORD` goes on there by itself: the record knows its machine"
            if command == _RESUME
            else f"one of {', '.join(COMMANDS)}: for example `pgdyno on db1 check`",
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
        # Several machines may begin in the same second.
        made = f"{_RECORDS}/{local_now():%Y%m%d-%H%M%S}-{command}-{_OF_NO_NAME.sub('-', machine)}"
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
        words=(_RESUME, far.record, *options),
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

    try:
        carried = carry(link, tell=tell)
    except StepFailedError as error:
        error.hint = error.hint or "nothing has begun there: call it again"
        raise
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
        if order.words[0] == _RESUME:
            write_far(home, note)
        else:
            _write_stub(home, note, began.files)
            stack.enter_context(RecordStore(home).locked())

    with ExitStack() as stack, running(link, carried, order) as command:
        hint = "pgdyno there stops by itself within a minute or two, and puts settings back"
        try:
            ended = command.run(began=begin)
            hint = f"the command has ended there, and what it made stays in {ended.folder}"
            if home is not None:
                _take_home(command, ended, home, note)
            if home is None or note is None or not ended.has_result:
                command.remove()
            elif RecordStore(home).read_record().is_ended:
                # All of it is here: that comes first.
                write_far(home, msgspec.structs.replace(note, folder=None))
                hint = f"all is here; {ended.folder} there is not needed any more: remove it"
                command.remove()
        except StepFailedError as error:
            if not error.hint:
                error.hint = hint if note is None else f"{hint}; `pgdyno resume {home}` goes on"
            raise
        except KeyboardInterrupt as interrupt:
            goes_on = "" if note is None else f"; `pgdyno resume {home}` goes on"
            raise InterruptedStudyError("stopped here", hint=f"{hint}{goes_on}") from interrupt
    _check_not_killed(link.destination, ended.code, None if note is None else home)
    return ended.code


def _check_not_killed(name: str, code: int, record: Path | None) -> None:
    if code > _KILLED_BY and code != ExitCode.INTERRUPTED:
        raise StepFailedError(
            f"pgdyno was killed on {name}, by signal {code - _KILLED_BY}",
            detail="by a person there, or by the kernel for want of memory: `dmesg` there tells",
            hint="" if record is None else f"what was finished is here; `pgdyno resume {record}` goes on",
        )


def _take_home(command: FarCommand, ended: Ended, home: Path, note: FarRecord | None) -> None:
    if ended.has_result and note is not None:
        _bring_home(command, home, note)
    elif ended.has_result and home == Path(_CARDS):
        _bring_cards(command, home)
    elif note is not None and not RecordStore(home).has_trials:
        # The study was refused before its first trial, and there, too, its record is removed.
        RecordStore(home).remove()


def _write_stub(home: Path, note: FarRecord, files: Mapping[str, str]) -> None:
    try:
        # Another pgdyno may have made it meanwhile.
        home.mkdir(parents=True)
        (home / "trials").mkdir()
        write_far(home, note)
        # That machine has no say in the names. A folder is a record when it has the second one.
        for name in (STUDY_FILE, RECORD_FILE):
            (home / name).write_text(files.get(name, ""), encoding="utf-8")
    except OSError as exc:
        raise StepFailedError(f"cannot write a record to {home}", detail=why(exc)) from exc


def _bring_home(command: FarCommand, home: Path, note: FarRecord) -> None:
    """Fetch a record to a temporary name, and put it in its place when it is whole."""
    with _fetched(command, home.absolute().parent) as part:
        write_far(part / "new", note)
        os.sync()
        # What was there is older: it is of the same study.
        home.rename(part / "old")
        try:
            (part / "new").rename(home)
        except OSError:
            (part / "old").rename(home)
            raise
        os.sync()


def _bring_cards(command: FarCommand, home: Path) -> None:
    """Fetch disk cards, and put them beside those that are here."""
    with _fetched(command, home.absolute().parent) as part:
        home.mkdir(exist_ok=True)
        for card in (part / "new").iterdir():
            if os.path.lexists(home / card.name):
                raise StepFailedError(f"{home / card.name} exists already", hint="move it away, and measure again")
            card.rename(home / card.name)


@contextmanager
def _fetched(command: FarCommand, parent: Path) -> Iterator[Path]:
    """Fetch what a command has made, as `new` in a temporary folder."""
    remove_stale_folders(parent, _BRINGING)
    part = parent / f"{name_of_this_process(_BRINGING)}x"
    try:
        command.fetch(part / "new")
        yield part
    except OSError as exc:
        raise StepFailedError(f"cannot write what comes home to {parent}", detail=why(exc)) from exc
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
            if _is_file_here(name, Path()):
                _check_inside(name, name)
                found[os.path.normpath(name)] = Path(name)
    return found


def _find_scripts(study: Path) -> Mapping[str, Path]:
    """Return the files that a study names, by their paths relative to this folder: every string may be one.

    A study that is damaged is refused there.
    """
    try:
        words = _find_strings(tomllib.loads(study.read_text(encoding="utf-8")))
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
