from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.sweep.statuses import LoadStatus
from pgdyno.analyse.sweep.workload import analyse_workload_sweep
from pgdyno.plan.experiment import Experiment, is_client_sweep
from pgdyno.plan.variants import plan_experiment
from pgdyno.record.types import TrialStatus
from pgdyno.spec.read import make_study
from tests.analyse.test_rounds import build_trial


def experiment_of(**tables: object) -> Experiment:
    raw = {"workload": [{"name": "tpcb-like"}], **tables}
    planned = plan_experiment(make_study(raw, source="test", folder=Path()), version_major=18)
    assert planned is not None
    return planned


CLIENTS = {"name": "clients", "levels": [1, 2, 4, 8, 16, 32]}


def test_what_is_a_sweep_over_clients() -> None:
    assert is_client_sweep(experiment_of(sweep=[CLIENTS]))
    assert not is_client_sweep(experiment_of(sweep=[CLIENTS, {"name": "mode", "levels": ["simple", "prepared"]}]))
    assert not is_client_sweep(experiment_of(sweep=[{"name": "threads", "levels": [1, 2]}]))
    assert not is_client_sweep(experiment_of(variant=[{"clients": 1}, {"clients": 8}]))


def test_trials_become_the_points_of_their_clients() -> None:
    experiment = experiment_of(sweep=[CLIENTS], experiment={"detect": "90%"})
    trials = [
        build_trial(number, f"clients={clients}", round_number=1 + number // 7, tps=100.0 * clients / (1 + clients / 8))
        for number, clients in enumerate([1, 1, 2, 4, 8, 16, 32] * 2)
    ]
    sweep = analyse_workload_sweep(trials, experiment)
    assert sweep is not None
    assert [(point.clients, point.tps.n) for point in sweep.points][:2] == [(1, 4), (2, 2)]


def test_a_trial_that_was_only_observed_is_no_point() -> None:
    experiment = experiment_of(sweep=[CLIENTS])
    observed = [build_trial(1, "clients=1", round_number=0), build_trial(2, "clients=2", round_number=0)]
    assert analyse_workload_sweep(observed, experiment) is None
    trials = [build_trial(3, "clients=1", tps=500.0), build_trial(4, "clients=2", tps=900.0)]
    sweep = analyse_workload_sweep([*observed, *trials], experiment)
    assert sweep is not None
    assert [(point.tps.n, round(point.tps.value or 0.0)) for point in sweep.points] == [(1, 500), (1, 900)]


def test_before_two_loads_have_a_figure_there_is_no_curve() -> None:
    experiment = experiment_of(sweep=[CLIENTS])
    one = build_trial(1, "clients=1")
    assert analyse_workload_sweep([], experiment) is None
    assert analyse_workload_sweep([one, one], experiment) is None
    assert analyse_workload_sweep([one, build_trial(2, "clients=2", tps=None)], experiment) is None
    failed = build_trial(2, "clients=2")
    record = msgspec.structs.replace(failed.record, status=TrialStatus.FAILED)
    assert analyse_workload_sweep([one, msgspec.structs.replace(failed, record=record)], experiment) is None
    assert analyse_workload_sweep([one, build_trial(2, "clients=2")], experiment) is not None
    bare = msgspec.structs.replace(experiment, variants=(experiment.variants[0],))
    assert analyse_workload_sweep([one], bare) is None


def test_a_load_at_which_nothing_ends_has_collapsed() -> None:
    experiment = experiment_of(sweep=[CLIENTS])
    curve = {1: 100.0, 2: 190.0, 4: 350.0, 8: 500.0, 16: 400.0, 32: 0.0}
    trials = [
        build_trial(number, f"clients={clients}", round_number=1 + number // 6, tps=tps * (1.0 + 0.002 * (number % 3)))
        for number, (clients, tps) in enumerate([*curve.items()] * 3)
    ]
    sweep = analyse_workload_sweep(trials, experiment)
    assert sweep is not None
    assert {point.clients: point.status for point in sweep.points}[32] is LoadStatus.COLLAPSE
    # As in comparisons, half of the least that could have been seen in 10 s.
    assert sweep.points[-1].tps.value == pytest.approx(0.05)
    assert sweep.peak.value == 8


def test_a_load_that_stalls_now_and_then_is_not_decided() -> None:
    experiment = experiment_of(sweep=[CLIENTS])
    rounds = (
        ((1, 100.0), (2, 190.0), (4, 350.0)),
        ((1, 101.0), (2, 189.0), (4, 0.0)),
        ((1, 99.0), (2, 191.0), (4, 352.0)),
    )
    trials = [
        build_trial(3 * index + clients, f"clients={clients}", round_number=1 + index, tps=tps)
        for index, of in enumerate(rounds)
        for clients, tps in of
    ]
    sweep = analyse_workload_sweep(trials, experiment)
    assert sweep is not None
    assert [point.tps.n for point in sweep.points] == [3, 3, 3]
    assert sweep.points[-1].status is None
