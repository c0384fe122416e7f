"""Run a live round, or trials one after the other, outside of a study, and return the TPS of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.live_member import LiveMember
from pgdyno.run.live_round import run_live_round
from pgdyno.run.own_server import OwnServer
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.run.trial_stage import TrialStage


def in_slot(stage: TrialStage, number: int) -> TrialStage:
    """Return a stage with its server in a slot, as each member of a live round has one."""
    assert isinstance(stage.server, OwnServer)
    slot = stage.server.in_slot(number)
    return msgspec.structs.replace(stage, server=slot, generator=slot.make_generator())


def count_tps(folder: Path, outcome: TrialOutcome) -> float:
    """Return the TPS of a trial in the counted part of its slices."""
    if outcome.error is not None:
        raise outcome.error
    data = read_trial_data(folder, outcome.record)
    counted_s = sum(one.counted_s for one in data.slices)
    logged_tps = sum(load.ok_count for load in data.slice_loads) / counted_s
    return logged_tps / outcome.record.log_sampling_rate


def run_live(stages: Sequence[TrialStage], folder: Path, *, slice_s: float | None, seed: int) -> list[float]:
    """Run a live round of these stages; return the TPS of each."""
    members = []
    for number, stage in enumerate(stages):
        (folder / f"{number}").mkdir(parents=True)
        trial = msgspec.structs.replace(stage.plan.trials[0], seed=seed * len(stages) + number)
        members.append(LiveMember(stage=stage, trial=trial, folder=folder / f"{number}"))
    outcomes = run_live_round(members, slice_s=slice_s, seed=seed, on_activity=lambda _: None, on_load=lambda _: None)
    return [count_tps(member.folder, outcome) for member, outcome in zip(members, outcomes, strict=True)]


def run_trials(stages: Sequence[TrialStage], folder: Path, *, duration_s: float, seed: int) -> list[float]:
    """Run a trial of each stage, one after the other; return the TPS of each."""
    rates = []
    for number, stage in enumerate(stages):
        place = folder / f"{number}"
        place.mkdir(parents=True)
        asked = {"seed": seed * len(stages) + number, "duration_s": duration_s}
        trial = msgspec.structs.replace(stage.plan.trials[0], **asked)
        outcome = run_trial(stage, trial, folder=place, on_activity=lambda _: None, on_load=lambda _: None)
        if outcome.error is not None:
            raise outcome.error
        rates.append(outcome.tps or math.nan)
    return rates
