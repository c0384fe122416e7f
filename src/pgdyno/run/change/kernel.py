"""Change kernel settings (sysctls, files below /sys, options of mounts) for a measurement, and always put them back.

Every change is in the journal before it is made. It is undone at the end of the block, also after Ctrl-C, SIGTERM and
errors; after kill -9 the next pgdyno undoes it with `restore_left_overs`. A value that another program has set in the
meantime is left in place and reported.

    with changed_sysctls({"vm.swappiness": "10"}) as kernel:
        kernel.switch({"vm.swappiness": "60"})

This module leaves the changes of tunings, finished or not, to `pgdyno restore`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from pgdyno.errors import HostError, PgdynoError
from pgdyno.run.change import kernel_file, sysfs
from pgdyno.run.change.changes import Change, TuningState, Undo, UndoOutcome, begin_change
from pgdyno.run.change.journal import Journal, own_journal
from pgdyno.run.change.kernel_lock import SettingLock
from pgdyno.run.change.kernel_undo import is_own_value, own_values, undo_changes
from pgdyno.run.change.sysctl import PARTNERS, UNUSED
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process_id import is_running, read_boot_id

_not_back: set[Change] = set()
"""What this process left in the journal: what it could not put back, or could not remove from there."""


class KernelSettings:
    """Kernel settings that this process holds: no other pgdyno changes them, and `undo` puts them back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._changes: dict[str, Change] = {}
        self._current: dict[str, str] = {}
        self._locks: dict[str, SettingLock] = {}
        # A thread that the end of a load did not wait for changes nothing after they are put back.
        self._guard = threading.RLock()
        self._is_over = False
        self.undone: tuple[Undo, ...] = ()
        """The results of putting the settings back; filled at the end of the block."""

    def hold(self, values: Mapping[str, str]) -> None:
        """Record in the journal which values settings may take, so that `switch` need not write a file.

        Raises:
            SpecError: As for `check_sysctls`.
            HostError: As for `check_sysctls`; or another pgdyno holds one of them, the journal cannot be written, or the
                settings are put back already.
        """
        with self._guard:
            self._hold(kernel_file.check_values(values))

    def switch(self, values: Mapping[str, str]) -> None:
        """Set these values, put all other held settings back, and read all of them back.

        If this fails, everything is as it was before, as far as the kernel allows.

        Raises:
            SpecError: A name or a value is refused.
            HostError: As for `hold`; or the kernel took a value differently, or another program changes one of them,
                too.
        """
        with self._guard:
            self._switch(values)

    def _switch(self, values: Mapping[str, str]) -> None:
        wanted = kernel_file.check_values(values)
        self._hold(wanted)
        self.check()
        expected = {name: change.old_value for name, change in self._changes.items()} | with_partners(wanted)
        # A new scheduler chooses these values itself.
        chosen = {
            reset
            for name in wanted
            if wanted[name] != self._changes[name].old_value
            for reset in sysfs.reset_with(name)
            if reset not in wanted
        }
        expected = {name: value for name, value in expected.items() if name not in chosen}
        try:
            if chosen & self._current.keys():
                # Under the same scheduler they would keep what another variant gave them.
                kernel_file.write_values(
                    {name: held.old_value for name, held in self._changes.items() if sysfs.reset_with(name)}
                )
            kernel_file.write_values(expected)
        except PgdynoError:
            kernel_file.write_values(self._current)
            raise
        self._current = expected

    def check(self) -> None:
        """Make sure that the settings are still as they were set last.

        Raises:
            HostError: Another program has changed one of them.
        """
        with self._guard:
            for name, current in self._current.items():
                if (found := kernel_file.read_value(name)) != current:
                    raise HostError(
                        f"another program has changed {name} meanwhile",
                        detail=f"pgdyno had left it at {current}, it is {found}",
                        hint="stop what manages kernel settings on this machine, such as tuned",
                    )

    def undo(self) -> None:
        """Put everything back for good, and remove it from the journal once this is verified.

        Raises:
            HostError: A setting could not be put back, or the journal cannot be written; what remains stays in the
                journal.
        """
        with uninterrupted(), self._guard:
            self._is_over = True
            if not self._changes:
                return
            self.undone = undo_changes(self._changes.values())
            for undo in self.undone:
                LOG.info("kernel setting %s: %s %s", undo.change.what, undo.outcome.value, undo.reason)
            failed = [undo for undo in self.undone if undo.outcome is UndoOutcome.FAILED]
            _not_back.update(self._changes.values())
            self._changes, self._current = {}, {}
            try:
                self._journal.drop(undo.change for undo in self.undone if undo.outcome is not UndoOutcome.FAILED)
                _not_back.difference_update(undo.change for undo in self.undone if undo not in failed)
            finally:
                _release(self._locks, self.undone)
        if failed:
            raise HostError(
                "kernel settings could not be put back",
                detail="\n".join(f"{undo.change.what}: {undo.reason}" for undo in failed),
                hint="`pgdyno restore` tries again",
            )

    def _hold(self, wanted: Mapping[str, str]) -> None:
        if self._is_over:
            raise HostError("the kernel settings are put back already")
        takes: dict[str, str | None] = dict(with_partners(wanted))
        # What a new scheduler resets is put back with it.
        takes |= {reset: None for name in wanted for reset in sysfs.reset_with(name) if reset not in wanted}
        if all(
            name in self._changes and (value is None or value in own_values(self._changes[name]))
            for name, value in takes.items()
        ):
            return
        with self._journal.open() as page:
            held, current = dict(self._changes), dict(self._current)
            try:
                for name, value in takes.items():
                    change = held.get(name)
                    if change is None:
                        change = self._begin(name, page.changes)
                        current[name] = (*change.new_values, change.old_value)[0]
                    if value is not None and value not in own_values(change):
                        change = msgspec.structs.replace(change, new_values=(*change.new_values, value))
                    held[name] = change
                others = [other for other in page.changes if not any(map(other.is_same_thing, held.values()))]
                taken_over = set(page.changes).difference(others)
                page.write([*others, *held.values()])
            except BaseException:
                for name in self._locks.keys() - self._changes.keys():
                    lock = self._locks.pop(name)
                    lock.release(keeps_note=lock.read() is not None)
                raise
            _not_back.difference_update(taken_over)
            self._changes, self._current = held, current
            for name, change in held.items():
                self._locks[name].note(change)

    def _begin(self, name: str, changes: Sequence[Change]) -> Change:
        """Begin a change, from the value before one that this process, or a killed pgdyno of another container, has left."""
        namespace = kernel_file.find_namespace(name)
        seen = kernel_file.read_value(name)
        change = begin_change(kind=kernel_file.kind_of(name), what=name, namespace=namespace, old_value=seen)
        own = next((left for left in changes if left in _not_back and left.is_same_thing(change)), None)
        if own is None:
            check_unheld(change, changes)
        self._locks[name] = lock = SettingLock.take(change)
        # A pgdyno of another container may have put it back just before it let go of the lock.
        found = kernel_file.read_value(name)
        change = msgspec.structs.replace(change, old_value=found)
        left = lock.read() if own is None else own
        if left is None or found == left.old_value or not is_own_value(left, found):
            return change
        LOG.warning("an earlier change has left %s changed from %s", name, left.old_value)
        return msgspec.structs.replace(change, old_value=left.old_value, new_values=(found,))


@contextlib.contextmanager
def changed_sysctls(values: Mapping[str, str], *, journal: Journal | None = None) -> Iterator[KernelSettings]:
    """Change kernel settings for the length of a block.

    Args:
        values: The settings at the beginning of the block; may be empty.
        journal: The journal to write; None: the machine's own.

    Raises:
        SpecError: A name or a value is refused; nothing stays changed.
        HostError: As for `KernelSettings.switch` and, at the end, `KernelSettings.undo`.
    """
    held = KernelSettings(journal or Journal())
    try:
        held.switch(values)
        if values:
            LOG.info("kernel settings changed: %s", dict(values))
        yield held
    except BaseException:
        # The user sees this error. What could not be put back is still in the journal, for `undo_own` and the next pgdyno.
        with contextlib.suppress(HostError):
            held.undo()
        raise
    held.undo()


def restore_left_overs(journal: Journal | None = None) -> tuple[Undo, ...]:
    """Put back what killed measurements have left changed, but not what a running pgdyno holds.

    An account that may not do this gets failed outcomes, not an error, because it can still measure. An unfinished
    tuning is also reported as failed: undoing it may need a restart, which the user has not asked for here.

    Raises:
        HostError: The journal cannot be read.
    """
    journals = (journal,) if journal else (Journal(), own_journal())
    unfinished = {each.folder: undo for each in journals if (undo := _find_unfinished(each))}
    return (*undo_left_overs(journals[0]), *unfinished.values())


def _find_unfinished(journal: Journal) -> Undo | None:
    tuning = journal.read_tuning()
    if tuning is None or tuning.state is not TuningState.APPLYING or is_running(tuning.owner):
        return None
    reason = "it was tuning this host when it was killed: `pgdyno restore` undoes all of that"
    return Undo(change=tuning.changes[0], outcome=UndoOutcome.FAILED, reason=reason)


def undo_left_overs(journal: Journal) -> tuple[Undo, ...]:
    """Put back what killed measurements have left changed, and ignore tunings.

    Raises:
        HostError: The journal cannot be read.
    """
    return _undo_in(journal, _left_overs)


def undo_own(journal: Journal | None = None) -> tuple[Undo, ...]:
    """Try once more to put back what this process could not at the end of a block: a server may have needed the memory.

    Raises:
        HostError: The journal cannot be read.
    """
    if not _not_back:
        return ()
    undone = _undo_in(journal or Journal(), lambda changes: [change for change in changes if change in _not_back])
    _not_back.difference_update(undo.change for undo in undone if undo.outcome is not UndoOutcome.FAILED)
    return undone


def _undo_in(journal: Journal, choose: Callable[[Iterable[Change]], list[Change]]) -> tuple[Undo, ...]:
    if not choose(journal.read()):
        return ()
    try:
        with journal.open() as page:
            undone = _undo_unlocked(choose(page.changes))
            done = {undo.change for undo in undone if undo.outcome is not UndoOutcome.FAILED}
            page.write(change for change in page.changes if change not in done)
            return undone
    except HostError as error:
        # A reboot has undone changes of an earlier boot, which only stand in the journal.
        left = [change for change in choose(journal.read()) if change.owner.boot_id == read_boot_id()]
        return tuple(Undo(change=change, outcome=UndoOutcome.FAILED, reason=error.reason) for change in left)


def _undo_unlocked(changes: Iterable[Change]) -> tuple[Undo, ...]:
    """Undo changes, but not those of settings that a pgdyno of another container holds now."""
    free: list[Change] = []
    # A name alone is no key: each network namespace has its own.
    locks: dict[Change, SettingLock] = {}
    busy: list[Undo] = []
    for change in changes:
        try:
            locks[change] = SettingLock.take(change)
            free.append(change)
        except HostError as error:
            busy.append(Undo(change=change, outcome=UndoOutcome.FAILED, reason=error.reason))
    undone = undo_changes(free)
    left = {undo.change for undo in undone if undo.outcome is UndoOutcome.FAILED}
    for change, lock in locks.items():
        lock.release(keeps_note=change in left)
    return (*undone, *busy)


def _release(locks: dict[str, SettingLock], undone: Iterable[Undo]) -> None:
    left = {undo.change.what for undo in undone if undo.outcome is UndoOutcome.FAILED}
    while locks:
        name, lock = locks.popitem()
        lock.release(keeps_note=name in left)


def _left_overs(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if not is_running(change.owner)]


def with_partners(wanted: Mapping[str, str]) -> dict[str, str]:
    """Put before each setting the partner that it makes unused."""
    return {**{PARTNERS[name]: UNUSED for name in wanted if name in PARTNERS}, **wanted}


def check_unheld(change: Change, changes: Sequence[Change]) -> None:
    """Check that no measurement holds a setting or has left it changed.

    Raises:
        HostError: A measurement holds it or has left it changed.
    """
    other = next((other for other in changes if other.is_same_thing(change)), None)
    if other is None:
        return
    name = change.what
    if is_running(other.owner):
        raise HostError(
            f"another pgdyno is changing {name}",
            detail=f"pid {other.owner.pid}, since {other.at}",
            hint="wait for it: two at once would distort each other's figures",
        )
    raise HostError(
        f"a pgdyno that was killed has left {name} changed",
        detail=f"it was {other.old_value} before {other.at}",
        hint="`pgdyno restore` puts it back",
    )
