"""Experiments and rounds made up for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pgdyno.analyse.comparison import Round
from pgdyno.plan.experiment import Experiment, plan_experiment
from pgdyno.spec.read import make_study


def build_experiment(*names: str, **experiment: object) -> Experiment:
    """An experiment whose arms have these names; the first is the reference."""
    variants = [{"name": name, "settings": {"commit_delay": number}} for number, name in enumerate(names)]
    raw = {"workload": [{"name": "tpcb-like"}], "variant": variants, "experiment": experiment}
    planned = plan_experiment(make_study(raw, source="test", folder=Path()), version_major=18)
    assert planned is not None
    return planned


def build_round(number: int, arms: Mapping[str, Sequence[Mapping[str, float]]]) -> Round:
    """The round that ended after so many times 10 s."""
    return Round(trial=1, at_s=10.0 * number, length_s=9.0, values={arm: tuple(of) for arm, of in arms.items()})


def build_rounds(metric: str, **arms: Sequence[float | tuple[float, ...]]) -> list[Round]:
    """A round of each column; of the reference, and wherever an arm ran twice, a tuple."""
    columns = zip(*arms.values(), strict=True)
    return [
        build_round(
            number,
            {
                arm: [{metric: value} for value in (cell if isinstance(cell, tuple) else (cell,))]
                for arm, cell in zip(arms, column, strict=True)
            },
        )
        for number, column in enumerate(columns, start=1)
    ]
