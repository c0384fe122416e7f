"""Keep the list of experiments that were run to confirm what limits a record's loads.

The list is `confirmations.json` in the record's folder; older records have none. It names each experiment's folder and
the result that was expected. The actual result is not kept here: it is computed from the experiment's own record.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.record.damage import refusing_damage
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.store import RecordStore

CONFIRMATIONS_FILE = "confirmations.json"
CONFIRMATIONS_VERSION = 1


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment with two variants: the load unchanged, and the load with one thing changed."""

    record: str
    """Folder of the experiment's record, relative to the folder of the record that it confirms."""
    workload: str
    """The load that the experiment is about, by the name that the analysis gives it."""
    resource: str
    """The resource that was suspected of limiting the load."""
    reference: str
    """Name of the unchanged variant."""
    changed: str
    """Name of the changed variant."""
    expects: str
    """The verdict on the changed variant's TPS that is expected if the resource limits the load."""
    is_what_if: bool
    """True if the changed variant gives up durability."""
    is_specific: bool = True
    """True if any other limit would give a different result; if not, the expected result proves nothing."""
    least_ratio: float = 0.0
    """The least change of TPS that is expected if the resource limits the load."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = CONFIRMATIONS_VERSION
    confirmations: tuple[Confirmation, ...] = ()


def read_confirmations(store: RecordStore) -> tuple[Confirmation, ...]:
    """Return the experiments that were run to confirm findings of a record, oldest first.

    Raises:
        SpecError: The file is damaged, or a newer pgdyno wrote it.
    """
    path = store.path / CONFIRMATIONS_FILE
    if not path.exists():
        return ()
    with refusing_damage(f"{path} is damaged", hint="the rest of the record can be read without this file"):
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    if document.format_version > CONFIRMATIONS_VERSION:
        raise SpecError(f"{path} has the newer format {document.format_version}", hint="read it with a later pgdyno")
    return document.confirmations


def add_confirmation(store: RecordStore, made: Confirmation) -> None:
    """Add an experiment to a record's list.

    Raises:
        StepFailedError: The list cannot be written; the old one stays.
    """
    document = _Document(confirmations=(*read_confirmations(store), made))
    path = store.path / CONFIRMATIONS_FILE
    with writing(path):
        write_durably(path, msgspec.json.format(msgspec.json.encode(document), indent=1))


def locate_experiment(store: RecordStore, made: Confirmation) -> RecordStore:
    """Return the store of the experiment's record, which may no longer exist."""
    return RecordStore(Path(os.path.normpath(store.path / made.record)))
