"""Tell how often a trial failed before it was run again: its earlier tries stay beside it, as `NNNN.cut-K`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.record.store import TRIAL_FILE, read_trial
from pgdyno.record.types import TrialStatus

# Source: OtherMemberFailedError, as run/live_round.py and run/turn_round.py raise it.
_OF_ANOTHER = re.compile(r"the (live )?round ended because .+ failed")


def count_failures(folder: Path) -> int:
    """Count the tries that failed by themselves, of the trial in a folder; what the user or another trial ended is none.

    A try whose `trial.json` is damaged is not counted.
    """
    numbered = (folder.with_name(f"{folder.name}.cut-{number}") for number in itertools.count(1))
    return sum(map(_has_failed, itertools.takewhile(Path.exists, numbered)))


def _has_failed(folder: Path) -> bool:
    if not (folder / TRIAL_FILE).exists():
        return False
    try:
        trial = read_trial(folder / TRIAL_FILE)
    except SpecError:
        return False
    is_of_another = trial.error is not None and _OF_ANOTHER.fullmatch(trial.error.fact) is not None
    return trial.status is TrialStatus.FAILED and not is_of_another
