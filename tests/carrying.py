"""Carry pgdyno to a test's machine without its 600 MB of packages."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from pgdyno.run.link.ssh import open_link
from pgdyno.run.over.carry import carry
from pgdyno.run.over.parcels import Parcel, Platform, pack_packages
from pgdyno.run.over.talk import talking
from pgdyno.spec.hosts import HostEntry, HostRole


def carry_in_a_line(folder: Path, machine: str = "db1") -> None:
    """Put this environment's packages where they are carried to, as one line that names them."""
    line = folder / "here.pth"
    line.write_text(sysconfig.get_path("purelib") + "\n")

    def pack_line(there: Platform, here: Platform) -> Parcel:
        name = pack_packages(there, here).name
        return Parcel(name=name, title="one line", list_files=lambda: {line.name: line})

    with open_link(HostEntry(role=HostRole.SERVER, ssh=machine)) as link, talking(link) as talk:
        carry(talk, tell=lambda _: None, pack=pack_line)
