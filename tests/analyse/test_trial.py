"""A trial's figures alone, as whoever runs trials asks for them between two: the same as a report's."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.trial.analysis import _statements, analyse_trial, measure_trial
from pgdyno.analyse.trial.generators import measure_generators
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.pgbench.output import PgbenchSummary, ScriptResult, StatementResult
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import GeneratorData, read_trial_data
from tests.analyse.joined import START_S, UNLOGGED, make_data, make_workload
from tests.analyse.timed import with_late_sample

RECORDS = Path(__file__).parents[1] / "data" / "records"
EXPLAINS = frozenset(
    {"charts", "events", "statements", "predictions", "disk", "health", "time", "episodes", "episodes_absent", "episode_causes", "quoted", "waiting"}
)  # fmt: skip


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_figures_alone_are_those_of_the_whole_analysis(name: str) -> None:
    store = open_record(RECORDS / name)
    record = store.read_record()
    for trial in store.read_trials():
        data, load = read_trial_data(store.trial_dir(trial.planned.number), trial), record.plan.find_load(trial.planned)
        figures, whole = measure_trial(record, load, data), analyse_trial(record, load, data)
        different = {field for field in whole.__struct_fields__ if getattr(figures, field) != getattr(whole, field)}
        assert {"charts", "health"} <= different <= EXPLAINS
        assert figures.tps is not None
        assert figures.shares["cpu_busy_ratio"] is not None


def test_a_trial_in_slices_or_without_logged_checkpoints_counts_them_by_its_own_counters() -> None:
    """The log of a live round has those of the time in which other servers ran, and is not read for its trials."""
    store = open_record(RECORDS / "v1-pg18")
    record = store.read_record()
    trial = store.read_trials()[0]
    data, load = read_trial_data(store.trial_dir(trial.planned.number), trial), record.plan.find_load(trial.planned)
    whole = analyse_trial(record, load, data)
    grown = sum(trial.growth(name) or 0.0 for name in ("checkpoints_requested_count", "checkpoints_timed_count"))
    assert whole.checkpoint_count == grown > 0
    unlogged = msgspec.structs.replace(trial, settings=(*trial.settings, UNLOGGED))
    assert msgspec.structs.replace(whole, record=unlogged, events=()).checkpoint_count == grown
    sliced = msgspec.structs.replace(whole, record=msgspec.structs.replace(trial, slice_s=0.5), events=())
    assert sliced.checkpoint_count == grown
    mixed = msgspec.structs.replace(trial, slice_s=0.5, counters_before={})
    assert msgspec.structs.replace(whole, record=mixed, events=()).checkpoint_count is None


def test_a_load_host_s_late_sample_counts_for_as_long_as_its_pgbench_worked_until_then() -> None:
    data = make_data(seconds=10.0)
    assert data.os is not None
    part = LoadPart(host="load1", argv=(), pid=1, clients=4, threads=1, start_far_s=START_S, epoch_offset_s=0.0)
    samples = with_late_sample(data.os, "load", busy_s=4.0)
    host = GeneratorData(part=part, pgbench=None, transactions=None, clock=None, os=samples)
    record = open_record(RECORDS / "v1-pg18").read_record()
    data = msgspec.structs.replace(data, generators=(host,))
    (figures,) = measure_generators(record, make_workload("select-only"), data)
    assert figures.thread_ratio == pytest.approx(0.4)


def test_scripts_are_called_by_the_names_that_the_user_gave_them() -> None:
    def name(*printed: str) -> list[str]:
        times = (StatementResult(text="SELECT;", latency_average_ms=1.0, failure_count=0, retry_count=None),)
        results = tuple(
            ScriptResult(number=number, name=each, statements=times) for number, each in enumerate(printed, start=1)
        )
        if len(printed) == 1:
            return [one.script for one in _statements(PgbenchSummary(transaction_type=printed[0], statements=times))]
        return [one.script for one in _statements(PgbenchSummary(scripts=results))]

    there = "/dev/shm/pgdyno-load-4711-3f-abc/script-{}-{}"
    assert name(there.format(1, "pay.sql")) == ["pay.sql"]
    assert name(there.format(1, "pay.sql"), "<builtin: select only>") == ["pay.sql", "<builtin: select only>"]
    assert name("/record/trials/0001/warm-up/script-1-script-2-a.sql") == ["script-2-a.sql"]
    assert name(*(there.format(number, "pay.sql") for number in (1, 2))) == ["pay.sql (1)", "pay.sql (2)"]
