"""Copies of stored records, with facts changed: what two machines, two months or two questions would have left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "data" / "records"
WRITING = "v1-pg18"
"""tpcb-like, prepared, 4 clients, two trials of 8 s with nine checkpoints each."""

Change = Callable[[dict[str, Any]], object]


def copy_record(
    folder: Path,
    *,
    name: str = WRITING,
    at: str = "2026-11-22T10:00:00+00:00",
    study: Change | None = None,
    trial: Change | None = None,
) -> Path:
    """A copy of a stored record that began at another time.

    Args:
        folder: Of the copy, which must not be there yet.
        name: Of the stored record.
        at: When the copy says it began.
        study: Changes record.json in place.
        trial: Changes each trial.json in place.
    """
    shutil.copytree(RECORDS / name, folder)
    edit(folder / "record.json", lambda record: record.update(started_at=at))
    if study is not None:
        edit(folder / "record.json", study)
    if trial is not None:
        for path in folder.glob("trials/*/trial.json"):
            edit(path, trial)
    return folder


def edit(path: Path, change: Change) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def with_setting(name: str, value: str, boot_value: str = "on", unit: str | None = None) -> Change:
    """Adds a setting to a trial."""
    fact = {"name": name, "value": value, "unit": unit, "boot_value": boot_value, "source": "configuration file"}
    return lambda trial: trial["settings"].append(fact)
