"""`--server-host` without `--dsn`, and `pgdyno on`: run a whole command on a machine that is reached by ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import ExitCode, InterruptedStudyError, StepFailedError, why
from pgdyno.flow.far_order import RESUME, make_entry, refuse_options
from pgdyno.record.device.disk_card import CARDS
from pgdyno.record.durable import put_in_place
from pgdyno.record.far import FAR_FILE, FarRecord, write_far
from pgdyno.record.store import RECORD_FILE, STUDY_FILE, RecordStore
from pgdyno.report.format import format_bytes
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over.carry import Carried, carry
from pgdyno.run.over.command import Began, Ended, FarCommand, Order, running
from pgdyno.run.over.relay import relaying
from pgdyno.spec.hosts import HostEntry

_BRINGING = ".bringing-"
_CARRYING_S = 30.0
# As a shell says it.
_KILLED_BY = 128


def run_over(
    entry: HostEntry, order: Order, *, loads: Mapping[str, HostEntry], ui: Ui, before_output: Callable[[], None]
) -> int:
    """Carry pgdyno to a machine, run a command there, bring home what it has made, and return its exit code.

    Args:
        entry: The machine.
        order: The command.
        loads: The load hosts that it names, which are reached from here.
        ui: Shows the progress of carrying.
        before_output: Called before the command's own output appears.

    Raises:
        HostError: The machine is not reached, or pgdyno does not run there.
        StepFailedError: The link is lost; pgdyno then stops there by itself.
    """
    with open_link(entry) as link, relaying(entry, loads) as variables:
        carried = _carry(link, ui)
        before_output()
        order = msgspec.structs.replace(order, variables=variables)
        return _run(link, carried, order, None if order.result is None else Path(order.result))


def resume_over(
    store: RecordStore, far: FarRecord, options: Sequence[str], *, ui: Ui, before_output: Callable[[], None]
) -> int:
    """Go on with a study on the machine where it was begun; see `run_over`."""
    refuse_options(options)
    study, entry = store.read_record().study, make_entry(far.ssh)
    if study.server_host is not None and study.server_host[1].ssh == far.ssh:
        entry = study.server_host[1]
    order = Order(
        words=(RESUME, far.record, *options),
        files={} if far.folder is not None else _list_record(store.path, far.record),
        folder=far.folder,
        result=far.record,
    )
    with store.locked(), open_link(entry) as link, relaying(entry, study.load_hosts) as variables:
        carried = _carry(link, ui)
        before_output()
        return _run(link, carried, msgspec.structs.replace(order, variables=variables), store.path)


def _list_record(record: Path, there: str) -> Mapping[str, Path]:
    # Without the note that it is made elsewhere: it is made there.
    paths = [path for path in record.rglob("*") if path.is_file() and path != record / FAR_FILE]
    return {f"{there}/{path.relative_to(record)}": path for path in paths}


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
        if order.words[0] == RESUME:
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
    elif ended.has_result and home == CARDS:
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
        put_in_place(part / "new", home, aside=part / "old")
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
