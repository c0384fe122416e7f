"""Compare variants by the parts of a load: each part has TPS and latencies of its own, and verdicts of its own.

The rounds are those of the whole load, and the experiment ends once every part is decided: the TPS of unlike transactions added
up decide nothing. The parts are a family of questions by themselves: all variants on all parts of the study's loads, for each
metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pgdyno.analyse.comparison.answers import SPEED_METRICS, Comparison, Round, choose_speed_metric, compare
from pgdyno.analyse.comparison.rounds import rounds_of_slices, rounds_of_trials
from pgdyno.analyse.types import PartFigures, TrialAnalysis
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.types import PlannedWorkload
from pgdyno.record.trial_data import TrialData


class PartComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All questions about one part of a load."""

    workload: str
    part: str
    comparison: Comparison
    """Its workload is called `part PART of WORKLOAD`."""


def rounds_of_block_part(data: TrialData, part: str) -> tuple[Round, ...]:
    """Return the complete rounds of a switchback block with the values of one part."""
    loads = data.part_loads.get(part)
    if loads is None:
        return ()
    return rounds_of_slices(
        data.slices,
        loads,
        trial=data.record.planned.number,
        sampling_rate=data.record.log_sampling_rate,
        failures=data.failures,
    )


def rounds_of_parts(trials: Sequence[TrialAnalysis], part: str) -> tuple[Round, ...]:
    """Return the rounds of paired trials with the values of one part; trials without it are missing from their rounds."""
    found = [(trial, _find(trial, part)) for trial in trials]
    return rounds_of_trials(
        (_narrow(trial, figures) for trial, figures in found if figures is not None), cpu_count=None
    )


def find_primary_metrics(workloads: Iterable[PlannedWorkload]) -> dict[tuple[str, str], str]:
    """Return the deciding metric of each part, by workload and part."""
    return {
        (workload.name, part.name): choose_speed_metric(part.rate_tps)
        for workload in workloads
        for part in workload.parts
    }


def compare_parts(
    rounds: Mapping[tuple[str, str], Sequence[Round]],
    experiment: Experiment,
    *,
    primary: Mapping[tuple[str, str], str],
    final_looks: Mapping[str, int],
    planned_rounds: Mapping[str, int],
) -> tuple[PartComparison, ...]:
    """Answer every question about the parts of a study's loads.

    Args:
        rounds: By workload and part.
        experiment: The experiment.
        primary: The deciding metric, by workload and part.
        final_looks: By workload, the number of the last trial in its final look; empty while none is made.
        planned_rounds: By workload, the number of rounds that its final look will have, where it is known.
    """
    names = {key: f"part {key[1]} of {key[0]}" for key in rounds}
    compared = compare(
        {names[key]: of for key, of in rounds.items()},
        experiment,
        primary={name: primary[key] for key, name in names.items()},
        metrics=SPEED_METRICS,
        final_looks={names[key]: final_looks[key[0]] for key in rounds if key[0] in final_looks},
        planned_rounds={names[key]: planned_rounds[key[0]] for key in rounds if key[0] in planned_rounds},
    )
    return tuple(
        PartComparison(workload=workload, part=part, comparison=one)
        for (workload, part), one in zip(rounds, compared, strict=True)
    )


def _find(trial: TrialAnalysis, part: str) -> PartFigures | None:
    return next((one for one in trial.parts if one.name == part), None)


def _narrow(trial: TrialAnalysis, part: PartFigures) -> TrialAnalysis:
    """Return a trial with the figures of one part in place of the whole load's."""
    return msgspec.structs.replace(
        trial,
        tps=part.tps,
        pgbench_tps=None,
        latency_mean_ms=part.latency_mean_ms,
        percentiles=part.percentiles,
        counts_per_transaction={},
        shares={},
    )
