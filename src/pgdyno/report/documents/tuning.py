"""Make the published document of derived settings: `pgdyno tune --json`."""

from __future__ import annotations

import msgspec

from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.sections.tuning.view import GivenRole, SettingChange, Tried, TuningView, list_changes
from pgdyno.tune.types import DerivedSettings

TUNE_VERSION = 1


class TuneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno tune --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-tune"
    version: int = TUNE_VERSION
    server: str
    machine: str
    postgresql: str
    tried: Tried
    unchecked: tuple[str, ...] = ()
    now_of: str
    changes: tuple[SettingChange, ...]
    tuning: DerivedSettings
    unseen: tuple[Unseen, ...]
    file_errors: tuple[str, ...] = ()
    given: GivenRole | None = None


def tune_document(view: TuningView) -> TuneDocument:
    """Return the derived settings as a document."""
    return TuneDocument(
        server=view.server,
        machine=view.machine,
        postgresql=view.version,
        tried=view.tried,
        unchecked=view.unchecked,
        now_of=view.now_of,
        changes=list_changes(view),
        tuning=view.tuning,
        unseen=view.unseen,
        file_errors=view.file_errors,
        given=view.given,
    )
