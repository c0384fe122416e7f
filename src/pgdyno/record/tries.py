"""Tell how often a trial failed before it was run again: its earlier tries stay beside it, as `NNNN.cut-K`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.record.store import TRIAL_FILE, read_trial
from pgdyno.record.types import TrialStatus

_NOT_BY_ITSELF = re.compile(
    # Source: OtherMemberFailedError, as run/live_round.py and run/turn_round.py raise it.
    r"the (live )?round ended because .+ failed"
    # Source: run/given/bounds.py. What was written by all trials before ends whichever runs then.
    r"|the server has written .+ of WAL, more than the study may have it write"
    r"|pgdyno's databases take .+ in the server, more than they may",
    re.DOTALL,
)


def count_failures(folder: Path) -> int:
    """Count the tries of the trial in a folder that failed by themselves.

    Not counted are tries that the user, another trial or a bound of the study ended, and those whose `trial.json` cannot be read.
    """
    numbered = (folder.with_name(f"{folder.name}.cut-{number}") for number in itertools.count(1))
    return sum(map(_has_failed, itertools.takewhile(Path.exists, numbered)))


def _has_failed(folder: Path) -> bool:
    try:
        trial = read_trial(folder / TRIAL_FILE)
    except (SpecError, OSError):
        return False
    is_ended = trial.error is not None and _NOT_BY_ITSELF.fullmatch(trial.error.fact) is not None
    return trial.status is TrialStatus.FAILED and not is_ended
