"""Which experiments were run to confirm what limits a record's loads: where each lies, and what it was to show.

`confirmations.json` in a record's folder; a record of before has none. What came out is not kept here: it is worked out
from the experiment's own record, which lies beside.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.store import RecordStore

CONFIRMATIONS_FILE = "confirmations.json"
CONFIRMATIONS_VERSION = 1


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment of two variants: a load as it was, and one thing changed."""

    record: str
    """Folder of its record, from the folder of the record that it is about."""
    workload: str
    """The load that it is about, by the name that analysis gives it."""
    resource: str
    """What was taken to limit it."""
    reference: str
    """Name of the variant as it was."""
    changed: str
    """Name of the other one."""
    expects: str
    """The verdict on the changed variant's TPS, if it is what limits the load."""
    is_what_if: bool
    """Whether the changed variant gives up durability."""
    is_specific: bool = True
    """Whether what else could limit the load would answer otherwise; else an answer as expected proves nothing."""
    least_ratio: float = 0.0
    """By how much TPS changes at the least, if it is what limits the load."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = CONFIRMATIONS_VERSION
    confirmations: tuple[Confirmation, ...] = ()


def read_confirmations(store: RecordStore) -> tuple[Confirmation, ...]:
    """The experiments that were run about a record, oldest first; none where none was.

    Raises:
        SpecError: The file is damaged, or a newer pgdyno wrote it.
    """
    path = store.path / CONFIRMATIONS_FILE
    if not path.exists():
        return ()
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except msgspec.DecodeError as exc:
        raise SpecError(f"{path} is damaged", detail=str(exc), hint="without it the record is whole") from exc
    if document.format_version > CONFIRMATIONS_VERSION:
        raise SpecError(f"{path} has the newer format {document.format_version}", hint="read it with a later pgdyno")
    return document.confirmations


def add_confirmation(store: RecordStore, made: Confirmation) -> None:
    """Keep that an experiment is run about a record.

    Raises:
        StepFailedError: It cannot be written; what was there stays.
    """
    document = _Document(confirmations=(*read_confirmations(store), made))
    path = store.path / CONFIRMATIONS_FILE
    with writing(path):
        write_durably(path, msgspec.json.format(msgspec.json.encode(document), indent=1))


def locate(store: RecordStore, made: Confirmation) -> RecordStore:
    """The experiment's record; it may be gone."""
    return RecordStore(Path(os.path.normpath(store.path / made.record)))
