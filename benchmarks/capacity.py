"""Whether what a machine is said to carry holds: bounds from one number of clients against the most TPS with any number.

Takes the records of sweeps over clients (`pgdyno sweep clients=1..32`). Each load of such a sweep gives bounds and a hint
for clients by itself, as a bench at that one number of clients would; the sweep as a whole says what came of it. No load's
bound should lie below what another one reached, and the hint should hold the sweep's knee. How far the most TPS stays
below the bound is what a bound does not tell.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec
from figures import say, say_share

from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.disk.demand import find_limits
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.study import analyse_study, find_capacities
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="of a sweep over clients")
    seen = [each for path in parser.parse_args().records for each in list_loads(path)]
    if not seen:
        parser.error("none of these records is of a sweep over clients")
    passed, reached, hinted, inside = [], [], [], []
    for capacity, sweep in seen:
        best = max(sweep.points, key=lambda point: point.to_best.value or 0.0).tps
        bound, advice, knee = capacity.ceiling, capacity.advice, sweep.knee
        ratio = (best.value or 0.0) / (bound.value or 1.0)
        reached.append(ratio)
        # Without intervals a bound is passed where its value is.
        passed.append((best.low or best.value or 0.0) > (bound.high or bound.value or 0.0))
        if knee.value is not None and advice.low is not None and advice.high is not None:
            inside.append(advice.low <= knee.value <= advice.high)
            # A sweep knows its knee no better than its interval says; without an end it may be any.
            hinted.append(advice.low <= (knee.high or math.inf) and (knee.low or 1.0) <= advice.high)
        hint = "none" if advice.low is None else f"{advice.low} to {advice.high}"
        print(
            f"{capacity.workload}, {capacity.clients} clients: {capacity.tps.value:,.0f} TPS, bound {bound.value:,.0f}"
            f" ({capacity.lowest.kind.noun if capacity.lowest else 'none'}); most {best.value:,.0f} TPS, {ratio:.0%} of it;"
            f" hint {hint}, knee {_say(knee)}"
        )
    say_share("capacity.bounds.passed", passed, target="<= 0.05")
    say("capacity.bounds.reached", statistics.median(reached), unit="ratio", n=len(reached))
    say_share("capacity.hints.hold", hinted, target=">= 0.9")
    say_share("capacity.hints.hold_best_estimate", inside)


def list_loads(path: Path) -> Iterator[tuple[Capacity, ClientSweep]]:
    """Each load of a sweep as if it were alone, with the sweep."""
    store = open_record(path)
    record, card = store.read_record(), store.read_card()
    limits = None if card is None else find_limits(card)
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    analysis = analyse_study(record, trials, limits=limits)
    alone = find_capacities(record, msgspec.structs.replace(analysis, sweeps={}), limits)
    for capacity in alone:
        sweep = next((one for name, one in analysis.sweeps.items() if capacity.workload.startswith(name)), None)
        if sweep is not None and capacity.ceiling.value is not None:
            yield capacity, sweep


def _say(knee: Estimate) -> str:
    if knee.value is None:
        return "not known"
    return f"{knee.value:.0f} [{knee.low or 1:.0f} - {'more' if knee.high is None else f'{knee.high:.0f}'}]"


if __name__ == "__main__":
    main()
