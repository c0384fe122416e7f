"""Put kernel settings back to the values that they had before pgdyno changed them.

A value that another program has set in the meantime is left in place. A setting that is not visible from here, after a reboot or in
another namespace, is judged by its entry in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pgdyno.errors import PgdynoError
from pgdyno.run.change import kernel_file, sysfs
from pgdyno.run.change.changes import Change, ChangeKind, Undo, UndoOutcome
from pgdyno.run.change.sysctl import PARTNERS, as_decimal, namespace_exists
from pgdyno.run.host.process_id import read_boot_id

# The kernel allocates these pages one by one: if it is interrupted or runs out of memory, it keeps those it has.
_REACHED_BY_STEPS = frozenset({"vm.nr_hugepages", "vm.nr_hugepages_mempolicy", "nr_hugepages"})


def own_values(change: Change) -> tuple[str, ...]:
    """Return all values that a setting had or was given by pgdyno, the old one first."""
    return (change.old_value, *change.new_values)


def undo_changes(changes: Iterable[Change], *, is_lasting: bool = False) -> tuple[Undo, ...]:
    """Put settings back to their old values, unless another program has changed them since.

    Args:
        changes: Changes of sysctls and of files below /sys.
        is_lasting: Whether files set these values again at each boot, except for those of disks.
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
    """Undo the change of one setting, or of several whose values only make sense together."""
    settled = [undo for change in group if (undo := _settle_unseen(change, is_lasting=is_lasting)) is not None]
    if settled:
        return settled
    try:
        found = {change.what: kernel_file.read_value(change.what) for change in group}
        # What a scheduler that is not the old one has chosen is no other program's value.
        changed = [change.what for change in group if found[change.what] != change.old_value]
        reset = {other for name in changed for other in sysfs.reset_with(name)}
        if any(change.what not in reset and not is_own_value(change, found[change.what]) for change in group):
            return [_leave(change, found[change.what]) for change in group]
        kernel_file.write_values({change.what: change.old_value for change in group})
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
    """Return the outcome for a setting that is not visible from here; None if it is visible."""
    is_earlier_boot = change.owner.boot_id != read_boot_id()
    # Disks and namespaces may have other names after a reboot.
    if is_earlier_boot and not (is_lasting and (not _is_sysfs(change) or sysfs.is_same_after_boot(change.what))):
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="a reboot has undone it")
    if not is_earlier_boot and not _is_sysfs(change) and change.namespace != kernel_file.find_namespace(change.what):
        exists = False if change.namespace is None else namespace_exists(change.namespace)
        if exists is None:
            reason = f"this account may not see whether its namespace {change.namespace} is gone"
            return Undo(change=change, outcome=UndoOutcome.FAILED, reason=reason)
        if exists:
            reason = f"it belongs to the namespace {change.namespace}: run `pgdyno restore` in there"
            return Undo(change=change, outcome=UndoOutcome.FAILED, reason=reason)
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="its namespace is gone")
    if not kernel_file.is_there(change.what):
        return Undo(change=change, outcome=UndoOutcome.GONE, reason="the kernel no longer has it")
    return None


def is_own_value(change: Change, value: str) -> bool:
    """Return whether a value is one that a setting had or was given by pgdyno, or that such a change leads to."""
    # A change of scheduler resets these settings to values that pgdyno did not choose.
    # An earlier pgdyno noted hexadecimal numbers as they were given.
    own = {given for one in own_values(change) for given in (one, as_decimal(change.what, one))}
    if value in own or (_is_sysfs(change) and not change.new_values):
        return True
    if change.what.rpartition("/")[2] not in _REACHED_BY_STEPS:
        return False
    sizes = [int(one) for one in own if one.isdigit()]
    return value.isdigit() and bool(sizes) and min(sizes) <= int(value) <= max(sizes)


def _leave(change: Change, found: str) -> Undo:
    if found == change.old_value:
        return Undo(change=change, outcome=UndoOutcome.UNNEEDED, found_value=found)
    reason = "another program has changed it since, so pgdyno left it as it is"
    return Undo(change=change, outcome=UndoOutcome.LEFT, found_value=found, reason=reason)
