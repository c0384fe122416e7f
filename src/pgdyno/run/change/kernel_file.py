"""Check, read and write kernel settings by name, whether their files are below /proc/sys or below /sys.

A sysctl has its usual name, such as `vm.swappiness`. A setting below /sys has its path there, such as
`kernel/mm/transparent_hugepage/enabled`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgdyno.run.change import sysctl, sysfs
from pgdyno.run.change.journal import ChangeKind


def kind_of(name: str) -> ChangeKind:
    """Return of which kind a change of a setting is."""
    return ChangeKind.SYSFS if sysfs.is_known(name) else ChangeKind.SYSCTL


def check_values(values: Mapping[str, str]) -> dict[str, str]:
    """Check whether settings can be changed here and undone; return them by canonical name.

    Raises:
        SpecError: As for `check_sysctls` and `check_sysfs`.
        HostError: Likewise.
    """
    files = {name: value for name, value in values.items() if sysfs.is_known(name)}
    others = {name: value for name, value in values.items() if name not in files}
    return {**sysctl.check_sysctls(others), **sysfs.check_sysfs(files)}


def find_namespace(name: str) -> str | None:
    """Return the kernel namespace of a setting; None if it is the same for all."""
    return None if sysfs.is_known(name) else sysctl.find_namespace(name)


def read_value(name: str) -> str:
    """Read a setting by its canonical name.

    Raises:
        HostError: This account may not read it.
    """
    return sysfs.read_value(name) if sysfs.is_known(name) else sysctl.read_value(name)


def write_values(expected: Mapping[str, str]) -> None:
    """Set values by canonical name, in this order, and read all of them back.

    Raises:
        SpecError: The kernel refuses a value.
        HostError: A value cannot be written, or the kernel took it differently.
    """
    files = {name: value for name, value in expected.items() if sysfs.is_known(name)}
    sysctl.write_values({name: value for name, value in expected.items() if name not in files})
    sysfs.write_values(files)
