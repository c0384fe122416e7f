"""Note in a record which machine it comes from, where pgdyno ran on a machine that is reached by ssh."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, why
from pgdyno.record.damage import refusing_damage
from pgdyno.record.durable import write_durably, writing
from pgdyno.spec.hosts import HostEntry

FAR_FILE = "ssh.json"


class FarRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a record was made, and where the study goes on."""

    ssh: str
    """The machine as for ssh."""
    folder: str | None
    """The folder there in which pgdyno runs; None: it is removed, since all of the record is here."""
    record: str
    """The record's path in that folder."""
    load_hosts: Mapping[str, HostEntry] = msgspec.field(default_factory=dict)
    """The load hosts that the user named here. The record's own are of that machine, which must not choose what is reached from here."""


def write_far(record: Path, far: FarRecord) -> None:
    """Write the note into a record's folder.

    Raises:
        StepFailedError: It cannot be written.
    """
    with writing(record / FAR_FILE):
        write_durably(record / FAR_FILE, msgspec.json.encode(far) + b"\n")


def read_far(record: Path) -> FarRecord | None:
    """Return where a record comes from; None if it was made here.

    Raises:
        SpecError: The note is damaged.
        HostError: It cannot be read.
    """
    try:
        raw = (record / FAR_FILE).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise HostError(f"cannot read where the record {record} was made", detail=why(exc)) from exc
    with refusing_damage(f"{record / FAR_FILE} is damaged", hint="put it back from a copy of the record"):
        return msgspec.json.decode(raw, type=FarRecord)
