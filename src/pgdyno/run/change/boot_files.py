"""The files with which the machine sets pgdyno's kernel settings again at each boot, and who has the last word there.

Settings of a disk stand in none of them: after a boot another disk may have its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pgdyno.run.change import sysfs
from pgdyno.run.change.journal import Change, ChangeKind
from pgdyno.run.change.kernel import with_partners
from pgdyno.run.change.sysctl import PARTNERS, UNUSED

ETC = Path("/etc")
_HEADER = "# Written by `pgdyno tune --apply`; `pgdyno restore` takes it away.\n"
# Source: sysctl.d(5), tmpfiles.d(5): of all folders together the files are read in the order of their names. Of sysctls the
# last one counts, of lines for one path in tmpfiles.d the first.
_ROOTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
_SYSCTL, _TMPFILES = "sysctl.d", "tmpfiles.d"


class BootFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is read at each boot."""

    path: Path
    names: tuple[str, ...]
    """Of the settings that it is written for."""
    content: bytes


def plan_boot_files(
    etc: Path, earlier: tuple[Change, ...], *, sysctls: Mapping[str, str], sysfs_values: Mapping[str, str]
) -> Iterator[BootFile]:
    """What sets these at each boot, with what earlier tunings have set and this one leaves as it is.

    Args:
        etc: Where the machine's folders for them are; of one that it has not, no file.
        earlier: Changes of the kernel that are in force.
        sysctls: To be set now.
        sysfs_values: By path below /sys; likewise.
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
    """What else is read at a boot, sets the same and counts instead, in words."""
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
                    told.append(f"at the next boot {other} has the last word on {name}")
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
