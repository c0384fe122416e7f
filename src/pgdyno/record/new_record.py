"""Choose where a new record lies that the user does not name."""

from __future__ import annotations

import itertools
from datetime import datetime
from pathlib import Path

_RECORDS = Path("pgdyno-records")


def choose_record(name: str, *, at: datetime, folder: Path = _RECORDS) -> Path:
    """Return the place of a new record: a time and a name, in a folder of records.

    One that begins within the same second as another has a number, too.
    """
    moment = f"{at:%Y%m%d-%H%M%S}"
    moments = itertools.chain([moment], (f"{moment}-{number}" for number in itertools.count(2)))
    return next(path for each in moments if not (path := folder / f"{each}-{name}").exists())
