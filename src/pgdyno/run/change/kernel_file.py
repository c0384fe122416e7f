"""Check, read and write kernel settings by name, whether they are files below /proc/sys or /sys, or options of a mount.

A sysctl has its usual name, such as `vm.swappiness`. A setting below /sys has its path there, such as
`kernel/mm/transparent_hugepage/enabled`. An option of a mount is named `mount:/mnt/data:commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pgdyno.errors import HostError, SpecError, putting_off
from pgdyno.run.change import mount_option, sysctl, sysfs
from pgdyno.run.change.changes import ChangeKind

# Both are the size of one pool; they differ in the memory nodes that it takes pages from. Source: the kernel's
# Documentation/admin-guide/mm/hugetlbpage.rst.
_ONE_POOL = {"vm.nr_hugepages_mempolicy": "vm.nr_hugepages"}


def kind_of(name: str) -> ChangeKind:
    """Return of which kind a change of a setting is."""
    if mount_option.is_known(name):
        return ChangeKind.MOUNT
    return ChangeKind.SYSFS if sysfs.is_known(name) else ChangeKind.SYSCTL


def check_values(values: Mapping[str, str]) -> dict[str, str]:
    """Check whether settings can be changed here and undone; return them by canonical name.

    Raises:
        SpecError: Two names are of one setting; or as for `check_sysctls`, `check_sysfs` and `check_mount_options`.
        HostError: Likewise.
    """
    one_name = {name: _resolve(name) for name in values}
    one = {name: _ONE_POOL.get(found, found) for name, found in one_name.items()}
    if twice := [name for name in values if list(one.values()).count(one[name]) > 1]:
        raise SpecError(f"{' and '.join(twice)} are one setting", hint="set only one of them")
    values = {one_name[name]: value for name, value in values.items()}
    checked: dict[str, str] = {}
    refused: list[HostError] = []
    for kind, check in _CHECKS.items():
        with putting_off(refused):
            checked |= check(_of(values, kind))
    if refused:
        raise refused[0]
    return checked


def _resolve(name: str) -> str:
    """Return the one name of a setting that has several."""
    named = sysfs.resolve_name(name)
    return sysctl.resolve_sysctl(named) if kind_of(named) is ChangeKind.SYSCTL else named


def find_namespace(name: str) -> str | None:
    """Return the kernel namespace of a setting; None if it is the same for all."""
    kind = kind_of(name)
    if kind is ChangeKind.MOUNT:
        return str(Path("/proc/thread-self/ns/mnt").readlink())
    return None if kind is ChangeKind.SYSFS else sysctl.find_namespace(name)


def read_value(name: str) -> str:
    """Read a setting by its canonical name.

    Raises:
        HostError: This account may not read it.
    """
    return _MODULES[kind_of(name)].read_value(name)


def write_values(expected: Mapping[str, str]) -> None:
    """Set values by canonical name, within each kind in this order, schedulers first, and read all of them back.

    Raises:
        SpecError: The kernel refuses a value.
        HostError: A value cannot be written, or the kernel took it differently.
    """
    for kind, module in _MODULES.items():
        module.write_values(_of(expected, kind))


def is_there(name: str) -> bool:
    """Return whether the machine still has a setting."""
    return _MODULES[kind_of(name)].is_there(name)


def _of(values: Mapping[str, str], kind: ChangeKind) -> dict[str, str]:
    return {name: value for name, value in values.items() if kind_of(name) is kind}


class _Module(Protocol):
    def read_value(self, name: str) -> str: ...
    def write_values(self, expected: Mapping[str, str]) -> None: ...
    def is_there(self, name: str) -> bool: ...


_CHECKS = {
    ChangeKind.SYSCTL: sysctl.check_sysctls,
    ChangeKind.SYSFS: sysfs.check_sysfs,
    ChangeKind.MOUNT: mount_option.check_mount_options,
}
_MODULES: Mapping[ChangeKind, _Module] = {
    ChangeKind.SYSCTL: sysctl,
    ChangeKind.SYSFS: sysfs,
    ChangeKind.MOUNT: mount_option,
}
