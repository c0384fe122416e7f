"""`--server-host` without `--dsn`, and `pgdyno on`: run a whole command on a machine that is reached by ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import LateStep, Ui
from pgdyno.errors import ExitCode, HostError, InterruptedStudyError, PgdynoError, StepFailedError, why
from pgdyno.flow.far_order import RESUME, find_entry, refuse_options
from pgdyno.record.confirmation import CONFIRMATIONS_FILE
from pgdyno.record.device.disk_card import CARDS
from pgdyno.record.durable import put_in_place, write_durably
from pgdyno.record.far import FAR_FILE, FarRecord, write_far
from pgdyno.record.store import HTML_FILE, JSON_FILE, MARKDOWN_FILE, RECORD_FILE, STUDY_FILE, RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.report.format import format_bytes
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over.carry import Carried, carry
from pgdyno.run.over.command import Began, Ended, FarCommand, Order, running
from pgdyno.run.over.relay import relaying
from pgdyno.run.over.talk import FarTalk, talking
from pgdyno.spec.hosts import HostEntry

_NOT_BEGUN = "nothing has begun there: call it again"
_BRINGING = ".bringing-"
_REPORTS = (HTML_FILE, MARKDOWN_FILE, JSON_FILE)
_CARRYING_S = 30.0
# Less than this is sent within a second or two.
_LITTLE_BYTES = 16 << 20
# As a shell says it.
_KILLED_BY = 128


def run_over(
    entry: HostEntry,
    order: Order,
    *,
    loads: Mapping[str, HostEntry],
    ui: Ui,
    before_output: Callable[[], None],
    home: Path | None = None,
    check: Callable[[RecordStore], None] = lambda _: None,
) -> int:
    """Carry pgdyno to a machine, run a command there, bring home what it has made, and return its exit code.

    Args:
        entry: The machine.
        order: The command.
        loads: The load hosts that it names, which are reached from here.
        ui: Shows the progress of carrying.
        before_output: Called before the command's own output appears.
        home: Where its result goes here; None: to the same path as there.
        check: Looks at the record that it has begun; what this raises ends it, and removes the record.

    Raises:
        HostError: The machine is not reached, or pgdyno does not run there.
        StepFailedError: The link is lost; pgdyno then stops there by itself.
    """
    with open_link(entry) as link, relaying(entry, loads) as variables:
        place = home if home is not None or order.result is None else Path(order.result)
        sent = msgspec.structs.replace(order, variables=variables)
        return _Run(link, sent, place, check, loads=loads).run(ui, before_output)


def resume_over(
    store: RecordStore, far: FarRecord, options: Sequence[str], *, ui: Ui, before_output: Callable[[], None]
) -> int:
    """Go on with a study on the machine where it was begun; see `run_over`."""
    refuse_options(options)
    entry = find_entry(far, store.read_record().study)
    order = Order(
        words=(RESUME, far.record, *options),
        files=_list_record(store.path, far.record),
        folder=far.folder,
        result=far.record,
    )
    with store.locked(), open_link(entry) as link, relaying(entry, far.load_hosts) as variables:
        sent = msgspec.structs.replace(order, variables=variables)
        return _Run(link, sent, store.path, loads=far.load_hosts).run(ui, before_output)


def _list_record(record: Path, there: str) -> Mapping[str, Path]:
    # Without the note that it is made elsewhere: it is made there.
    paths = [path for path in record.rglob("*") if path != record / FAR_FILE]
    return {f"{there}/{path.relative_to(record)}": path for path in paths}


def _carry(talk: FarTalk, ui: Ui) -> Carried:
    step = LateStep(
        ui,
        "carry",
        predicted_s=_CARRYING_S,
        announced=f"pgdyno is carried to {talk.destination}, once for each version",
    )
    carried = carry(talk, tell=step.tell)
    sent = format_bytes(carried.sent_bytes)
    # A terminal that takes nothing, after Ctrl-S, must not end Python there.
    with talk.kept_alive():
        step.end(f"{sent} through ssh, to {Path(carried.program).parent}; Python {carried.python} runs it")
    return carried


class _Run:
    """A command on a machine, and where its result goes here."""

    def __init__(
        self,
        link: SshLink,
        order: Order,
        home: Path | None,
        check: Callable[[RecordStore], None] = lambda _: None,
        *,
        loads: Mapping[str, HostEntry],
    ) -> None:
        self._link, self._order, self._home, self._check, self._loads = link, order, home, check, loads
        self._note: FarRecord | None = None
        self._refusal: PgdynoError | None = None
        self._hint = _NOT_BEGUN

    def run(self, ui: Ui, before_output: Callable[[], None]) -> int:
        """Run it, bring its result home, and return its exit code."""
        try:
            with ExitStack() as stack, talking(self._link) as talk, self._sent(talk, ui) as command:
                before_output()
                self._hint = "pgdyno there stops by itself within a minute or two, and puts settings back"
                ended = command.run(began=lambda began: self._begin(began, command, stack))
                self._hint = f"the command has ended there, and what it made stays in {ended.folder}"
                if self._refusal is None and self._home is not None:
                    _take_home(command, ended, self._home, self._note)
                self._leave(command, ended)
        except (StepFailedError, HostError) as error:
            error.hint = error.hint or f"{self._hint}{self._goes_on}"
            raise
        except KeyboardInterrupt as interrupt:
            raise InterruptedStudyError("stopped here", hint=f"{self._hint}{self._goes_on}") from interrupt
        if self._refusal is not None:
            raise self._refusal
        _check_not_killed(self._link.destination, ended.code, None if self._note is None else self._home)
        return ended.code

    @contextmanager
    def _sent(self, talk: FarTalk, ui: Ui) -> Iterator[FarCommand]:
        """Send it with its files, which may be a whole record, once pgdyno is there."""
        carried, size_bytes = _carry(talk, ui), self._order.size_bytes
        step = LateStep(ui, "send", predicted_s=_CARRYING_S)

        def tell(text: str) -> None:
            if size_bytes >= _LITTLE_BYTES:
                step.tell(text)

        with running(talk, carried, self._order, tell=tell) as command:
            step.end(f"{format_bytes(size_bytes)}: what is here of the record")
            yield command

    @property
    def _goes_on(self) -> str:
        is_known = self._note is not None or self._order.words[0] == RESUME
        return "" if not is_known else f"; `pgdyno resume {self._home}` continues"

    def _begin(self, began: Began, command: FarCommand, stack: ExitStack) -> None:
        """Put what the record begins with where it will lie, so that it can be resumed from here whatever happens."""
        if self._home is None or self._order.result is None:
            return
        note = FarRecord(
            ssh=self._link.destination, folder=began.folder, record=self._order.result, load_hosts=self._loads
        )
        if self._order.words[0] == RESUME:
            write_far(self._home, note)
        else:
            _write_stub(self._home, note, began.files, self._order.files)
            stack.enter_context(RecordStore(self._home).locked())
        self._note = note
        try:
            self._check(RecordStore(self._home))
        except PgdynoError as error:
            self._refusal, self._note = error, None
            RecordStore(self._home).remove()
            command.stop()
        else:
            command.note_known()

    def _leave(self, command: FarCommand, ended: Ended) -> None:
        """Remove its folder there if nothing of it is needed any more; else note there that all of it is here, too.

        Raises:
            StepFailedError: A record there is not the one that comes home.
        """
        if ended.has_other_record:
            # Marked as unknown, it would be removed by the next command there.
            command.note_known()
            raise StepFailedError(f"{self._link.destination} has a record that does not come home")
        if self._is_over(ended):
            self._hint = f"all is here; {ended.folder} there is not needed any more: remove it"
            command.remove()
        else:
            command.note_home()

    def _is_over(self, ended: Ended) -> bool:
        """Return whether nothing of it is needed there any more."""
        if self._home is None or self._note is None or not ended.has_result:
            return True
        if not RecordStore(self._home).read_record().is_ended:
            return False
        # All of it is here: that comes first.
        write_far(self._home, msgspec.structs.replace(self._note, folder=None))
        return True


def _check_not_killed(name: str, code: int, record: Path | None) -> None:
    if code > _KILLED_BY and code != ExitCode.INTERRUPTED:
        goes_on = "" if record is None else f"what was finished is here; `pgdyno resume {record}` continues; "
        raise StepFailedError(
            f"pgdyno was killed on {name}, by signal {code - _KILLED_BY}",
            detail="by a person there, or by the kernel for want of memory: `dmesg` there tells",
            hint=f"{goes_on}`pgdyno on {name} restore` puts settings of that machine back, if it had changed any",
        )


def _take_home(command: FarCommand, ended: Ended, home: Path, note: FarRecord | None) -> None:
    if ended.has_result and note is not None:
        _bring_home(command, home, note)
    elif ended.has_result and home == CARDS:
        _bring_cards(command, home)
    elif note is not None and not RecordStore(home).has_trials:
        # The study was refused before its first trial, and there, too, its record is removed.
        RecordStore(home).remove()


def _write_stub(home: Path, note: FarRecord, files: Mapping[str, str], sent: Mapping[str, Path]) -> None:
    """Write what a record begins with: all that it takes to begin anew there, should its folder there be gone.

    Raises:
        StepFailedError: It exists, or cannot be written; nothing of it remains.
        SpecError: What comes from there is no record.
    """
    try:
        # Another pgdyno may have made it meanwhile.
        home.mkdir(parents=True)
        try:
            _fill_stub(RecordStore(home), note, files, sent)
        except BaseException:
            # Half a record would block the next attempt.
            shutil.rmtree(home, ignore_errors=True)
            raise
    except OSError as exc:
        raise StepFailedError(f"cannot write a record to {home}", detail=why(exc)) from exc


def _fill_stub(store: RecordStore, note: FarRecord, files: Mapping[str, str], sent: Mapping[str, Path]) -> None:
    (store.path / "trials").mkdir()
    store.init_dir.mkdir()
    write_far(store.path, note)
    # That machine has no say in the names. A folder is a record once it has the last of its files.
    raw = files.get(RECORD_FILE, "").encode()
    write_durably(store.path / STUDY_FILE, files.get(STUDY_FILE, "").encode())
    _keep_sent(store, store.decode_record(raw), {f"{note.folder}/{name}": path for name, path in sent.items()})
    write_durably(store.path / RECORD_FILE, raw)


def _keep_sent(store: RecordStore, record: StudyRecord, sent: Mapping[str, Path]) -> None:
    """Copy the files that a study names into its record, as it will be done there, from those that were sent there."""
    for name, copy in store.name_scripts(record.plan).items():
        if name in sent:
            (store.path / copy).parent.mkdir(parents=True)
            shutil.copyfile(sent[name], store.path / copy)
    data = record.study.data
    if data.init is not None and data.init in sent:
        store.keep_init(msgspec.structs.replace(data, init=str(sent[data.init])))


def _bring_home(command: FarCommand, home: Path, note: FarRecord) -> None:
    """Fetch a record to a temporary name, and put it in its place when it is whole."""
    with _fetched(command, home.absolute().parent) as part:
        write_far(part / "new", note)
        _keep_own(home, part / "new")
        os.sync()
        # What else was there is older: it is of the same study.
        put_in_place(part / "new", home, aside=part / "old")
        os.sync()


def _keep_own(home: Path, new: Path) -> None:
    """Copy what was added at the top of a record here: the list of confirmations, and what has a name that the new record lacks."""
    for path in home.iterdir():
        # Locks and drafts are of running processes, and a report that did not come home is of an earlier state.
        if path.name.startswith(".") or path.name in _REPORTS:
            continue
        # The list is only added to here.
        if path.name != CONFIRMATIONS_FILE and (new / path.name).exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)


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
