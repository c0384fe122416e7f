"""Experiments and rounds made up for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.analyse.comparison.answers import Round
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.variants import plan_experiment
from pgdyno.spec.read import make_study


def build_experiment(*names: str, **experiment: object) -> Experiment:
    """An experiment whose variants have these names; the first is the reference."""
    variants = [{"name": name, "settings": {"commit_delay": number}} for number, name in enumerate(names)]
    raw = {"workload": [{"name": "tpcb-like"}], "variant": variants, "experiment": experiment}
    planned = plan_experiment(make_study(raw, source="test", folder=Path()), version_major=18)
    assert planned is not None
    return planned


def build_round(number: int, variants: Mapping[str, Sequence[Mapping[str, float]]]) -> Round:
    """The round that ended after so many times 10 s."""
    return Round(
        trial=1, at_s=10.0 * number, length_s=9.0, values={variant: tuple(of) for variant, of in variants.items()}
    )


def build_rounds(metric: str, **variants: Sequence[float | tuple[float, ...]]) -> list[Round]:
    """A round of each column; of the reference, and wherever a variant ran twice, a tuple."""
    columns = zip(*variants.values(), strict=True)
    return [
        build_round(
            number,
            {
                variant: [{metric: value} for value in (cell if isinstance(cell, tuple) else (cell,))]
                for variant, cell in zip(variants, column, strict=True)
            },
        )
        for number, column in enumerate(columns, start=1)
    ]


def in_round(trial: TrialAnalysis, number: int) -> TrialAnalysis:
    planned = msgspec.structs.replace(trial.record.planned, round=number)
    return msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, planned=planned))


def in_rounds(trials: Iterable[TrialAnalysis], *, each: int = 1) -> list[TrialAnalysis]:
    """Each trial in a round of its own, so many times."""
    return [in_round(trial, number) for number, trial in enumerate(trials, start=1) for _ in range(each)]
