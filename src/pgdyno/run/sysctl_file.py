"""The file with which the machine sets pgdyno's kernel settings again at each boot, and who has the last word there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pgdyno.run.journal import Change, ChangeKind
from pgdyno.run.kernel import with_partners
from pgdyno.run.sysctl import PARTNERS, UNUSED

SYSCTL_FILE = Path("/etc/sysctl.d/60-pgdyno.conf")
_HEADER = "# Written by `pgdyno tune --apply`; `pgdyno restore` takes it away.\n"
# Source: sysctl.d(5): of all folders together the files are read in the order of their names, the last one counts.
_OTHER_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")


def sysctl_file_content(earlier: tuple[Change, ...], wanted: Mapping[str, str]) -> bytes:
    """What stands in it, with what earlier tunings have set and this one leaves as it is."""
    values = {change.what: change.new_values[-1] for change in earlier if change.kind is ChangeKind.SYSCTL}
    values |= with_partners(wanted)
    used = {name: value for name, value in values.items() if not (value == UNUSED and name in PARTNERS)}
    return (_HEADER + "".join(f"{name} = {value}\n" for name, value in used.items())).encode()


def find_overriding(wanted: Mapping[str, str], path: Path) -> tuple[str, ...]:
    """What else is read after it at a boot and sets the same, in words."""
    told = []
    for file in sorted(
        (file for folder in {path.parent, *map(Path, _OTHER_FOLDERS)} for file in folder.glob("*.conf")),
        key=lambda file: (file.name, str(file)),
    ):
        if file.name <= path.name:
            continue
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                name = line.partition("=")[0].strip().lstrip("-").replace("/", ".")
                if name in wanted or PARTNERS.get(name) in wanted:
                    told.append(f"at the next boot {file} has the last word on {name}")
    return tuple(told)
