"""Plan the files that set kernel settings again at each boot, and find files that override them.

The files contain no settings of disks, because a disk may have another name after a boot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pgdyno.run.change import sysfs
from pgdyno.run.change.changes import Change, ChangeKind
from pgdyno.run.change.kernel import with_partners
from pgdyno.run.change.sysctl import PARTNERS, UNUSED

ETC = Path("/etc")
_HEADER = "# Written by `pgdyno tune --apply`; `pgdyno restore` takes it away.\n"
# Source: sysctl.d(5), tmpfiles.d(5): the files of all folders together are read in the order of their names. In
# sysctl.d the last assignment counts, in tmpfiles.d the first line for a path.
_ROOTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
_SYSCTL, _TMPFILES = "sysctl.d", "tmpfiles.d"


class BootFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the system reads at each boot."""

    path: Path
    names: tuple[str, ...]
    """The settings that this tuning writes to the file."""
    content: bytes


def plan_boot_files(
    etc: Path, earlier: tuple[Change, ...], *, sysctls: Mapping[str, str], sysfs_values: Mapping[str, str]
) -> Iterator[BootFile]:
    """Plan the files that set these values at each boot, and keep the values of earlier tunings.

    Args:
        etc: The folder that contains `sysctl.d` and `tmpfiles.d`; no file is planned for one that is missing.
        earlier: Kernel changes that are in force.
        sysctls: The values to set now, by name.
        sysfs_values: The values to set now, by path below /sys.
    """
    lasting = {name: value for name, value in sysfs_values.items() if sysfs.is_same_after_boot(name)}
    lines = [f"{name} = {value}" for name, value in _joined(earlier, ChangeKind.SYSCTL, with_partners(sysctls)).items()]
    # Source: tmpfiles.d(5): `w` writes to a file that is there, the dashes stand for its owner, its mode and its age.
    writes = [f"w /sys/{name} - - - - {value}" for name, value in _joined(earlier, ChangeKind.SYSFS, lasting).items()]
    for folder, wanted, text in ((_SYSCTL, sysctls, lines), (_TMPFILES, lasting, writes)):
        if wanted and (etc / folder).is_dir():
            content = (_HEADER + "".join(f"{line}\n" for line in text)).encode()
            yield BootFile(path=etc / folder / "60-pgdyno.conf", names=tuple(wanted), content=content)


def find_overriding(file: BootFile) -> tuple[str, ...]:
    """Describe other files that are read at boot and override a setting of this file."""
    told = []
    kind = file.path.parent.name
    folders = {file.path.parent, *(Path(root, kind) for root in _ROOTS)}
    for other in sorted(
        (other for folder in folders for other in folder.glob("*.conf")), key=lambda path: (path.name, str(path))
    ):
        if other.name <= file.path.name if kind == _SYSCTL else other.name >= file.path.name:
            continue
        with contextlib.suppress(OSError):
            for line in other.read_text(encoding="utf-8", errors="replace").splitlines():
                name = _name_of(line, kind)
                if name in file.names or PARTNERS.get(name) in file.names:
                    told.append(f"at the next boot {other} overrides {name}")
    return tuple(told)


def _name_of(line: str, kind: str) -> str:
    if kind == _SYSCTL:
        return line.partition("=")[0].strip().lstrip("-").replace("/", ".")
    return "".join(line.split()[1:2]).removeprefix("/sys/")


def _joined(earlier: tuple[Change, ...], kind: ChangeKind, wanted: Mapping[str, str]) -> dict[str, str]:
    before = {
        change.what: change.new_values[-1]
        for change in earlier
        if change.kind is kind and change.new_values and sysfs.is_same_after_boot(change.what)
    }
    return {name: value for name, value in {**before, **wanted}.items() if not (value == UNUSED and name in PARTNERS)}
