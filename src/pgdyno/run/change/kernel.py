"""Kernel settings (sysctls) changed while somebody measures, and always put back.

Every change is in the journal before it is made. It is undone at the end of a block, also on Ctrl-C, SIGTERM and errors;
after kill -9 by `restore_left_overs`, with which the next pgdyno begins. What somebody else has set meanwhile is left as
it is, and said.

    with changed_sysctls({"vm.swappiness": "10"}) as kernel:
        kernel.switch({"vm.swappiness": "60"})

What a tuning has set, and a tuning that is not finished, it leaves to who asks for `pgdyno restore`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pgdyno.errors import HostError, PgdynoError
from pgdyno.run.change import sysfs
from pgdyno.run.change.journal import (
    Change,
    ChangeKind,
    Journal,
    TuningState,
    Undo,
    UndoOutcome,
    begin_change,
    own_journal,
    uninterrupted,
)
from pgdyno.run.change.sysctl import (
    PARTNERS,
    UNUSED,
    check_sysctls,
    find_namespace,
    is_there,
    namespace_exists,
    read_value,
    write_values,
)
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process_id import is_running, read_boot_id

# The kernel allocates them one by one; stopped meanwhile, or out of memory, it stays where it got to.
_REACHED_BY_STEPS = frozenset({"vm.nr_hugepages", "vm.nr_hugepages_mempolicy", "nr_hugepages"})


class KernelSettings:
    """Kernel settings that this process holds: no other pgdyno changes them, and they are put back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._changes: dict[str, Change] = {}
        self._current: dict[str, str] = {}
        self.undone: tuple[Undo, ...] = ()
        """What putting them back came to; filled at the end of the block."""

    def hold(self, values: Mapping[str, str]) -> None:
        """Journal that settings may take these values, without changing any; then to `switch` to them writes no file.

        Raises:
            SpecError: As `check_sysctls`.
            HostError: As `check_sysctls`; or another pgdyno holds one of them, or the journal cannot be written.
        """
        self._hold(check_sysctls(values))

    def switch(self, values: Mapping[str, str]) -> None:
        """Set these, and put all else that is held back to what it was; then read all of it back.

        When it fails, everything is as it was before, as far as the kernel allows.

        Raises:
            SpecError: A name or a value is refused.
            HostError: As `hold`; or the kernel took a value differently, or somebody else changes one of them, too.
        """
        wanted = check_sysctls(values)
        self._hold(wanted)
        for name, current in self._current.items():
            if (found := read_value(name)) != current:
                raise HostError(
                    f"somebody else has changed {name} meanwhile",
                    detail=f"pgdyno had left it at {current}, it is {found}",
                    hint="stop what manages kernel settings on this machine, such as tuned",
                )
        expected = {name: change.old_value for name, change in self._changes.items()} | with_partners(wanted)
        try:
            write_values(expected)
        except PgdynoError:
            write_values(self._current)
            raise
        self._current = expected

    def undo(self) -> None:
        """Put everything back, and take it out of the journal once that was seen to be done.

        Raises:
            HostError: Something could not be put back, or the journal not be written; what is left is still in it.
        """
        if not self._changes:
            return
        with uninterrupted():
            self.undone = undo_changes(self._changes.values())
            for undo in self.undone:
                LOG.info("kernel setting %s: %s %s", undo.change.what, undo.outcome.value, undo.reason)
            self._changes, self._current = {}, {}
            self._journal.drop(undo.change for undo in self.undone if undo.outcome is not UndoOutcome.FAILED)
        failed = [undo for undo in self.undone if undo.outcome is UndoOutcome.FAILED]
        if failed:
            raise HostError(
                "kernel settings could not be put back",
                detail="\n".join(f"{undo.change.what}: {undo.reason}" for undo in failed),
                hint="`pgdyno restore` tries again",
            )

    def _hold(self, wanted: Mapping[str, str]) -> None:
        takes = with_partners(wanted)
        if all(name in self._changes and value in _own_values(self._changes[name]) for name, value in takes.items()):
            return
        with self._journal.open() as page:
            held = dict(self._changes)
            for name, value in takes.items():
                change = held.get(name) or _begin(name, page.changes)
                if value not in _own_values(change):
                    change = msgspec.structs.replace(change, new_values=(*change.new_values, value))
                held[name] = change
            before = set(self._changes.values())
            page.write([*(change for change in page.changes if change not in before), *held.values()])
            self._changes = held
            self._current = {name: self._current.get(name, change.old_value) for name, change in held.items()}


@contextlib.contextmanager
def changed_sysctls(values: Mapping[str, str], *, journal: Journal | None = None) -> Iterator[KernelSettings]:
    """Change kernel settings for the length of a block.

    Args:
        values: What to set at its beginning; may be empty.
        journal: The machine's own where none is given.

    Raises:
        SpecError: A name or a value is refused; nothing stays changed.
        HostError: As `KernelSettings.switch` and, at the end, `KernelSettings.undo`.
    """
    held = KernelSettings(journal or Journal())
    try:
        held.switch(values)
        if values:
            LOG.info("kernel settings changed: %s", dict(values))
        yield held
    except BaseException:
        # This is the error to be told; what could not be put back is in the journal still, and the next pgdyno begins
        # with it.
        with contextlib.suppress(HostError):
            held.undo()
        raise
    held.undo()


def restore_left_overs(journal: Journal | None = None) -> tuple[Undo, ...]:
    """Put back what killed pgdynos have left changed while they measured; what a running one holds is not touched.

    An account that may not do it gets outcomes that have failed, not an error: it can measure all the same. So does
    everyone for a tuning that was not finished: to undo it may take a restart, which nobody has asked for here.

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
    """As `restore_left_overs`, without a word of tunings.

    Raises:
        HostError: The journal cannot be read.
    """
    if not _left_overs(journal.read()):
        return ()
    try:
        with journal.open() as page:
            undone = undo_changes(_left_overs(page.changes))
            done = {undo.change for undo in undone if undo.outcome is not UndoOutcome.FAILED}
            page.write(change for change in page.changes if change not in done)
            return undone
    except HostError as error:
        # Of an earlier boot nothing is left but a line in the journal.
        left = [change for change in _left_overs(journal.read()) if change.owner.boot_id == read_boot_id()]
        return tuple(Undo(change=change, outcome=UndoOutcome.FAILED, reason=error.reason) for change in left)


def _left_overs(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if not is_running(change.owner)]


def with_partners(wanted: Mapping[str, str]) -> dict[str, str]:
    """Those that setting these makes unused, too, and before them."""
    return {**{PARTNERS[name]: UNUSED for name in wanted if name in PARTNERS}, **wanted}


def _own_values(change: Change) -> tuple[str, ...]:
    return (change.old_value, *change.new_values)


def _begin(name: str, changes: Sequence[Change]) -> Change:
    change = begin_change(kind=ChangeKind.SYSCTL, what=name, namespace=find_namespace(name), old_value=read_value(name))
    check_unheld(change, changes)
    return change


def check_unheld(change: Change, changes: Sequence[Change]) -> None:
    """Make sure that no measurement holds a thing, or has left it changed.

    Raises:
        HostError: One does.
    """
    other = next((other for other in changes if other.is_same_thing(change)), None)
    if other is None:
        return
    name = change.what
    if is_running(other.owner):
        raise HostError(
            f"another pgdyno is changing {name}",
            detail=f"pid {other.owner.pid}, since {other.at}",
            hint="wait for it: two at once would spoil each other's figures",
        )
    raise HostError(
        f"a pgdyno that was killed has left {name} changed",
        detail=f"it was {other.old_value} before {other.at}",
        hint="`pgdyno restore` puts it back",
    )


def undo_changes(changes: Iterable[Change], *, is_lasting: bool = False) -> tuple[Undo, ...]:
    """Put settings back to what they were, unless somebody else has changed them since.

    Args:
        changes: Of sysctls and below /sys.
        is_lasting: Whether those that are no disk's are set again at each boot.
    """
    groups: dict[tuple[str, str | None], list[Change]] = {}
    for change in changes:
        groups.setdefault((_group_of(change), change.namespace), []).append(change)
    return tuple(undo for group in groups.values() for undo in _undo_group(group, is_lasting=is_lasting))


def _group_of(change: Change) -> str:
    if change.kind is ChangeKind.SYSFS:
        scheduler = f"{change.what.rpartition('/')[0]}/scheduler"
        return scheduler if change.what in sysfs.reset_with(scheduler) else change.what
    return min(change.what, PARTNERS.get(change.what, change.what))


def _undo_group(group: Sequence[Change], *, is_lasting: bool) -> list[Undo]:
    """Undo the change of one setting, or of some whose values mean something together only."""
    settled = [undo for change in group if (undo := _settle_unseen(change, is_lasting=is_lasting)) is not None]
    if settled:
        return settled
    read, write = (sysfs.read_value, sysfs.write_values) if _is_sysfs(group[0]) else (read_value, write_values)
    try:
        found = {change.what: read(change.what) for change in group}
        if any(not _is_own_value(change, found[change.what]) for change in group):
            return [_leave(change, found[change.what]) for change in group]
        write({change.what: change.old_value for change in group})
    except PgdynoError as error:
        return [Undo(change=change, outcome=UndoOutcome.FAILED, reason=error.reason) for change in group]
    return [
        Undo(
            change=change,
            outcome=UndoOutcome.UNNEEDED if found[change.what] == change.old_value else UndoOutcome.UNDONE,
            found_value=found[change.what],
        )
        for change in group
    ]


def _is_sysfs(change: Change) -> bool:
    return change.kind is ChangeKind.SYSFS


def _settle_unseen(change: Change, *, is_lasting: bool) -> Undo | None:
    """What became of a change whose setting cannot be seen from here; None where it can."""
    is_earlier_boot = change.owner.boot_id != read_boot_id()
    # Disks may have other names after a reboot, and namespaces have.
    if is_earlier_boot and not (is_lasting and (not _is_sysfs(change) or sysfs.is_same_after_boot(change.what))):
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="a reboot has undone it")
    if not is_earlier_boot and not _is_sysfs(change) and change.namespace != find_namespace(change.what):
        if change.namespace is not None and namespace_exists(change.namespace):
            reason = f"it belongs to the namespace {change.namespace}: run `pgdyno restore` in there"
            return Undo(change=change, outcome=UndoOutcome.FAILED, reason=reason)
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="its namespace is gone")
    if not (sysfs.is_there if _is_sysfs(change) else is_there)(change.what):
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="the kernel no longer has it")
    return None


def _is_own_value(change: Change, value: str) -> bool:
    # What another scheduler has reset has values that pgdyno did not choose.
    if value in _own_values(change) or (_is_sysfs(change) and not change.new_values):
        return True
    if change.what.rpartition("/")[2] not in _REACHED_BY_STEPS:
        return False
    own = [int(own) for own in _own_values(change)]
    return min(own) <= int(value) <= max(own)


def _leave(change: Change, found: str) -> Undo:
    if found == change.old_value:
        return Undo(change=change, outcome=UndoOutcome.UNNEEDED, found_value=found)
    reason = "somebody else has changed it since, and it was left so"
    return Undo(change=change, outcome=UndoOutcome.LEFT, found_value=found, reason=reason)
