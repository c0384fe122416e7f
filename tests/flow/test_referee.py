from __future__ import annotations

import contextlib
import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.comparison.answers import Round
from pgdyno.analyse.comparison.final_look import FinalLook
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.study import analyse_study
from pgdyno.conduct.comparison_line import describe_loads, describe_progress, shorten
from pgdyno.conduct.finished import are_own_trials_finished
from pgdyno.conduct.runner import TrialRunner
from pgdyno.conduct.sequential import SequentialComparison
from pgdyno.errors import HostError, PgdynoError, RefusedValueError, StepFailedError
from pgdyno.plan.plan import Machine, PlannedTrial, Step, count_planned_rounds, plan_study
from pgdyno.record.store import RecordStore, open_record
from pgdyno.record.transactions.slices import SliceLoad
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import ErrorFact, StudyRecord
from pgdyno.run.measured_load import LostLogError
from pgdyno.run.trial import TrialOutcome
from pgdyno.spec.read import make_study
from tests.analyse.experiments import build_round
from tests.analyse.test_rounds import build_slice

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)


def build_record(design: str, *variants: str, **tables: object) -> StudyRecord:
    variants = [{"name": variant, "settings": {"commit_delay": number}} for number, variant in enumerate(variants)]
    raw = {"workload": [{"name": "tpcb-like"}, {"name": "select-only"}], "variant": variants}
    raw["experiment"] = {"design": design}
    study = make_study({**raw, **tables}, source="test", folder=Path())
    plan = plan_study(study, MACHINE)
    return msgspec.structs.replace(open_record(RECORD).read_record(), study=study, plan=plan)


def build_referee(record: StudyRecord) -> SequentialComparison:
    assert record.plan.experiment is not None
    return SequentialComparison(record, record.plan.experiment)


def trials_of(record: StudyRecord, workload: str) -> list[PlannedTrial]:
    return [trial for trial in record.plan.trials if trial.workload == workload]


@functools.cache
def read_stored_data() -> TrialData:
    return read_trial_data(RECORD / "trials" / "0001", open_record(RECORD).read_trials()[0])


def build_data(planned: PlannedTrial, *, tps: float = 1000.0) -> TrialData:
    """A finished trial that left nothing but what pgbench printed."""
    data = read_stored_data()
    assert data.pgbench is not None
    return msgspec.structs.replace(
        data,
        record=msgspec.structs.replace(data.record, planned=planned),
        pgbench=msgspec.structs.replace(data.pgbench, tps=tps),
        transactions=None,
        os=None,
        server=None,
        log=(),
    )


def build_block(
    planned: PlannedTrial, counts: dict[str, int], rounds: int = 12, slice_s: float | None = 1.0
) -> TrialData:
    """A block in which each variant's slices hold about so many transactions."""
    random = np.random.default_rng(planned.number)
    reference = next(iter(counts))
    slices = [
        build_slice(position, variant, number=number)
        for number in range(1, rounds + 1)
        for position, variant in enumerate([reference, *counts])
    ]
    sizes = [int(counts[one.variant] * random.normal(1, 0.01)) for one in slices]
    data = build_data(planned)
    return msgspec.structs.replace(
        data,
        record=msgspec.structs.replace(data.record, slice_s=slice_s),
        slices=tuple(slices),
        slice_loads=tuple(
            SliceLoad(ok_count=n, latency_us=np.full(n, 900, dtype=np.int64), end_s=np.ones(n)) for n in sizes
        ),
    )


def take_rounds(
    referee: SequentialComparison, trials: list[PlannedTrial], rounds: int, *, sd: float = 0.005, **tps: float
) -> None:
    """Let it take so many rounds of paired trials."""
    random = np.random.default_rng(1)
    for trial in [trial for trial in trials if trial.round <= rounds]:
        if trial.variants[0] in tps:
            referee.take(build_data(trial, tps=tps[trial.variants[0]] * random.normal(1, sd)))


# -- Switchback ------------------------------------------------------------------------------------------------------


def test_a_block_may_decide_one_workload_and_leave_the_other() -> None:
    record = build_record("switchback", "A", "B", "C")
    referee = build_referee(record)
    first, other = trials_of(record, "tpcb-like")[0], trials_of(record, "select-only")[0]
    assert referee.undecided("tpcb-like") == ("B", "C")
    assert referee.wants(first)
    referee.take(build_block(first, {"A": 800, "B": 1000, "C": 802}, rounds=60))
    assert referee.undecided("tpcb-like") == ()
    assert not referee.wants(first)
    assert referee.wants(other)
    assert not referee.is_settled
    referee.take(build_block(other, {"A": 800, "B": 400, "C": 1000}))
    assert referee.is_settled
    kinds = [q.verdict.kind for one in referee.compare() for q in one.questions]
    assert kinds == [VerdictKind.FASTER, VerdictKind.EQUIVALENT, VerdictKind.SLOWER, VerdictKind.FASTER]


def test_rounds_of_a_block_that_still_runs_count_only_for_the_question_at_hand() -> None:
    record = build_record("switchback", "A", "B")
    referee = build_referee(record)
    live = [build_round(n, {"A": [{"tps": 100.0 + n % 2}] * 2, "B": [{"tps": 150.0 - n % 2}]}) for n in range(12)]
    assert referee.undecided("tpcb-like", live) == ()
    assert referee.compare_workload("tpcb-like", live).rounds == 12
    assert referee.undecided("tpcb-like") == ("B",)
    assert referee.compare_workload("tpcb-like").rounds == 0


def test_blocks_add_up() -> None:
    record = build_record("switchback", "A", "B")
    referee = build_referee(record)
    for trial in trials_of(record, "tpcb-like")[:3]:
        referee.take(build_block(trial, {"A": 800, "B": 801}, rounds=2))
    assert referee.compare_workload("tpcb-like").rounds == 6


def test_the_slice_length_is_that_asked_for_or_an_earlier_blocks() -> None:
    record = build_record("switchback", "A", "B")
    referee = build_referee(record)
    assert referee.find_slice_s("tpcb-like") is None
    trial = trials_of(record, "tpcb-like")[0]
    referee.take(build_block(trial, {"A": 800, "B": 801}, rounds=0, slice_s=None))
    assert referee.find_slice_s("tpcb-like") is None
    referee.take(build_block(trial, {"A": 800, "B": 801}, rounds=1, slice_s=0.5))
    assert referee.find_slice_s("tpcb-like") == 0.5
    assert referee.find_slice_s("select-only") is None
    asked = build_record("switchback", "A", "B", experiment={"design": "switchback", "slice": "2s"})
    assert build_referee(asked).find_slice_s("select-only") == 2.0


# -- Paired trials ---------------------------------------------------------------------------------------------------


def test_trials_of_a_decided_variant_are_not_wanted_and_the_references_are_while_any_is_open() -> None:
    record = build_record("paired", "A", "B", "C")
    referee = build_referee(record)
    trials = trials_of(record, "tpcb-like")
    take_rounds(referee, trials, 8, A=1000.0, B=1200.0)
    later = [trial for trial in trials if trial.round == 9]
    assert referee.undecided("tpcb-like") == ("C",)
    assert {trial.variants[0]: referee.wants(trial) for trial in later} == {"A": True, "B": False, "C": True}
    assert all(referee.wants(trial) for trial in trials_of(record, "select-only"))
    referee.give_up("C")
    assert not any(referee.wants(trial) for trial in later)
    # Given up on one workload is given up on all.
    assert referee.undecided("select-only") == ("B",)


def test_a_round_under_way_compares_nothing_yet() -> None:
    record = build_record("paired", "A", "B")
    referee = build_referee(record)
    trials = [trial for trial in trials_of(record, "tpcb-like") if trial.round == 1]
    seen = []
    for trial in trials:
        referee.take(build_data(trial))
        seen.append(referee.compare_workload("tpcb-like").questions[0].verdict.n)
    assert seen == [0, 0, 1]


def test_variants_that_were_refused_are_not_asked_but_stay_in_the_family() -> None:
    record = build_record("paired", "A", "B", "C")
    error = ErrorFact(fact="does not start")
    refused = build_referee(msgspec.structs.replace(record, refused_variants={"C": error}))
    assert refused.undecided("tpcb-like") == ("B",)
    verdict = refused.compare_workload("tpcb-like").questions[0].verdict
    assert 1 - verdict.confidence == pytest.approx(0.05 / 4)
    assert build_referee(msgspec.structs.replace(record, refused_variants={"B": error, "C": error})).is_settled


def test_a_referee_keeps_no_charts() -> None:
    record = build_record("paired", "A", "B")
    referee = build_referee(record)
    referee.take(build_data(trials_of(record, "tpcb-like")[0]))
    (kept,) = referee._trials["tpcb-like"]
    assert kept.tps is not None
    assert (kept.charts, kept.events) == ({}, ())


def test_a_sweep_over_clients_asks_for_the_points_that_leave_the_curve_open() -> None:
    sweep = [{"name": "clients", "levels": [1, 2, 4, 8]}]
    record = build_record("paired", variant=[], sweep=sweep)
    referee = build_referee(record)
    trials = trials_of(record, "tpcb-like")
    assert referee.undecided("tpcb-like") == ("clients=2", "clients=4", "clients=8")
    take_rounds(referee, trials, 5, **{f"clients={n}": 1000.0 * n for n in (1, 2, 4, 8)})
    # More clients bring more TPS at each step: nothing is left open, though no variant needs a verdict against one client.
    assert referee.undecided("tpcb-like") == ()
    flat = build_referee(record)
    take_rounds(flat, trials, 5, sd=0.05, **{f"clients={n}": 1000.0 * min(n, 4) for n in (1, 2, 4, 8)})
    assert flat.undecided("tpcb-like") == ("clients=4", "clients=8")
    assert {trial.variants[0] for trial in trials if flat.wants(trial)} == {"clients=1", "clients=4", "clients=8"}


def test_a_sweep_over_clients_looks_after_whole_rounds() -> None:
    sweep = [{"name": "clients", "levels": [1, 2, 4, 8]}]
    record = build_record("paired", variant=[], sweep=sweep)
    referee = build_referee(record)
    ran: dict[int, list[str]] = {}
    for trial in trials_of(record, "tpcb-like"):
        if referee.wants(trial):
            clients = int(trial.variants[0].removeprefix("clients="))
            referee.take(build_data(trial, tps=1000.0 * clients * (1 + trial.number % 2 / 1000)))
            ran.setdefault(trial.round, []).append(trial.variants[0])
    # As soon as two loads were seen there is a curve, on which the others have no place yet.
    everything = sorted(["clients=1", "clients=1", "clients=2", "clients=4", "clients=8"])
    assert {number: sorted(variants) for number, variants in ran.items()} == dict.fromkeys(ran, everything)
    assert referee.undecided("tpcb-like") == ()


# -- The final look --------------------------------------------------------------------------------------------------


def find_p(referee: SequentialComparison, workload: str = "tpcb-like") -> float | None:
    look = referee.compare_workload(workload).questions[0].verdict.final_look
    assert isinstance(look, FinalLook)
    return look.p_value


def test_a_look_is_due_where_a_workload_is_open_and_has_enough_rounds() -> None:
    record = build_record("paired", "A", "B")
    referee = build_referee(record)
    trials = trials_of(record, "tpcb-like")
    assert referee.find_due_looks() == {}
    take_rounds(referee, trials, 3, sd=0.1, A=1000.0, B=1000.0)
    assert referee.find_due_looks() == {}
    take_rounds(referee, [trial for trial in trials if trial.round > 3], 6, sd=0.1, A=1000.0, B=1000.0)
    last = max(trial.number for trial in trials if trial.round == 6)
    assert referee.find_due_looks() == {"tpcb-like": last}
    decided = build_referee(record)
    take_rounds(decided, trials, 8, A=1000.0, B=1200.0)
    assert decided.find_due_looks() == {}


def test_older_plans_and_sweeps_over_clients_have_no_look() -> None:
    record = build_record("paired", "A", "B")
    assert record.plan.experiment is not None
    older = msgspec.structs.replace(record.plan.experiment, final_look=False)
    swept = build_record("paired", variant=[], sweep=[{"name": "clients", "levels": [1, 2]}])
    assert swept.plan.experiment is not None
    for of, experiment, names in (
        (record, older, ("A", "B")),
        (swept, swept.plan.experiment, ("clients=1", "clients=2")),
    ):
        referee = SequentialComparison(of, experiment)
        take_rounds(referee, trials_of(of, "tpcb-like"), 6, sd=0.1, **dict.fromkeys(names, 1000.0))
        assert referee.find_due_looks() == {}
        assert referee.compare_workload("tpcb-like").questions[0].verdict.final_look is msgspec.UNSET


def test_a_look_decides_stays_and_is_made_once() -> None:
    record = build_record("paired", "A", "B")
    referee = build_referee(record)
    trials = trials_of(record, "tpcb-like")
    take_rounds(referee, trials, 4, sd=0.03, A=1000.0, B=1200.0)
    assert referee.undecided("tpcb-like") == ("B",)
    looks = referee.find_due_looks()
    referee.look(looks)
    assert referee.undecided("tpcb-like") == ()
    assert not any(referee.wants(trial) for trial in trials)
    assert referee.find_due_looks() == {}
    # From the record it is as it was, also where more rounds have run since.
    again = build_referee(msgspec.structs.replace(record, final_looks=looks))
    take_rounds(again, trials, 9, sd=0.03, A=1000.0, B=1200.0)
    assert find_p(again) == pytest.approx(find_p(referee))
    assert again.compare_workload("tpcb-like").rounds == 9
    assert again.find_due_looks() == {}


def test_a_look_at_blocks_counts_all_rounds_of_the_blocks_before() -> None:
    record = build_record("switchback", "A", "B")
    referee = build_referee(record)
    first, *others = trials_of(record, "tpcb-like")
    referee.take(build_block(first, {"A": 800, "B": 824}, rounds=4))
    looks = referee.find_due_looks()
    assert looks == {"tpcb-like": first.number}
    referee.look(looks)
    found = find_p(referee)
    referee.take(build_block(others[0], {"A": 800, "B": 900}, rounds=5))
    assert find_p(referee) == pytest.approx(found)
    assert referee.compare_workload("tpcb-like").rounds == 9


class Listening:
    """A `conduct.ui.Ui` that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: None


def store_rounds(
    folder: Path, record: StudyRecord, *, until: int = 10_000, given_up: str | None = None, **tps: float
) -> RecordStore:
    """A record whose planned trials have run as far as they were of use, or until one of them, but which was killed before its study ended."""
    store, referee = RecordStore(folder), build_referee(record)
    store.create(record, study_toml="")
    if given_up is not None:
        referee.give_up(given_up)
    store_left(store, referee, record, until=until, **tps)
    return store


def store_left(
    store: RecordStore, referee: SequentialComparison, record: StudyRecord, *, until: int = 10_000, **tps: float
) -> None:
    output = (RECORD / "trials" / "0001" / "pgbench.stdout").read_text()
    random = np.random.default_rng(1)
    for trial in filter(referee.is_left, record.plan.trials[:until]):
        into = store.begin_trial(trial.number)
        shutil.copy(RECORD / "trials" / "0001" / "pgbench.json", into)
        level = tps[trial.variants[0]] * random.normal(1, 0.03)
        (into / "pgbench.stdout").write_text(re.sub(r"(?m)^tps = [0-9.]+", f"tps = {level:.3f}", output))
        store.write_trial(build_data(trial).record)
        referee.take(build_data(trial, tps=level))


def conduct(store: RecordStore) -> list[str]:
    """Run what is left of a record, which may be the final looks alone; gives what the user is told."""
    record, ui = store.read_record(), Listening()
    assert record.plan.experiment is not None
    referee = SequentialComparison(record, record.plan.experiment)
    referee.take_finished(store)
    TrialRunner(
        store=store, record=record, experiment=record.plan.experiment, stages={}, sequential=referee, ui=ui
    ).run()
    return ui.said


def test_a_comparison_that_has_run_its_planned_rounds_is_decided_by_the_final_look(tmp_path: Path) -> None:
    trials = {"duration": "1s", "warm_up": "0s"}
    # Two variants: with the fewest rounds the e-process decides nothing, however large the difference.
    record = build_record("paired", "A", "B", "C", workload=[{"name": "tpcb-like"}], trials=trials)
    four = [step for step in record.plan.steps if step.trial is None or step.trial.round <= 4]
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, steps=tuple(four)))
    store = store_rounds(tmp_path / "record", record, A=1000.0, B=2000.0, C=500.0)
    assert store.read_record().final_looks is msgspec.UNSET
    assert not are_own_trials_finished(store)
    (said,) = conduct(store)
    assert said.startswith("final look at tpcb-like: B faster +")
    assert "C slower -" in said
    kept = store.read_record()
    assert kept.final_looks == {"tpcb-like": 16}
    assert are_own_trials_finished(store)
    # A resumed study makes no other look, and its report finds the same.
    assert conduct(store) == []
    assert store.read_record() == kept
    data = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    (comparison,) = analyse_study(kept, data).comparisons
    assert [q.verdict.kind for q in comparison.questions if q.metric == "tps"] == [
        VerdictKind.FASTER,
        VerdictKind.SLOWER,
    ]


def test_a_comparison_that_wants_none_of_its_trials_any_more_is_finished(tmp_path: Path) -> None:
    trials = {"duration": "1s", "warm_up": "0s"}
    record = build_record("paired", "A", "B", "C", workload=[{"name": "tpcb-like"}], trials=trials)
    store = store_rounds(tmp_path / "record", record, A=1000.0, B=3000.0, C=1000.0)
    left = {trial.variants for trial in record.plan.trials if trial.number not in store.finished_numbers()}
    assert left == {("B",)}
    assert not are_own_trials_finished(store)
    referee = build_referee(record)
    referee.take_finished(store)
    assert referee.undecided("tpcb-like") == ("C",)
    store.write_record(msgspec.structs.replace(record, final_looks=referee.find_due_looks()))
    assert are_own_trials_finished(store)


class Playing(TrialRunner):
    """Takes trials that are made up instead of running them: identical variants, each trial as slow as it is told to be."""

    slowness = 1.0
    now_s = 0.0
    stops_after = 10_000
    """Number of the trial after which the user presses Ctrl-C."""
    taken: list[TrialData]

    def _run_live(self, trial: PlannedTrial) -> None:
        for step, other in self._wanted_beside(trial):
            self._run_trial(step, other)

    def _run_trial(self, step: Step, trial: PlannedTrial) -> None:
        self.now_s += (1.0 if trial.is_observed else self.slowness) * step.predicted_s
        level = 1000.0 * np.random.default_rng(trial.number).normal(1, 0.1)
        if trial.workload == "select-only" and trial.variants == ("B",):
            level *= 3
        self.taken.append(build_data(trial, tps=level))
        self._sequential.take(self.taken[-1])
        if trial.number >= self.stops_after:
            raise KeyboardInterrupt


def play(
    store: RecordStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    slowness: float,
    stops_after: int = 10_000,
    taken: list[TrialData] | None = None,
) -> tuple[SequentialComparison, list[str]]:
    """Play what is left of a record after the trials that were taken; gives the comparison and what the user is told."""
    record, ui = store.read_record(), Listening()
    assert record.plan.experiment is not None
    referee, taken = build_referee(record), [] if taken is None else taken
    referee.take_finished(store)
    for data in taken:
        referee.take(data)
    finished = {one.planned.number for one in store.read_trials()} | {data.record.planned.number for data in taken}
    monkeypatch.setattr(RecordStore, "finished_numbers", lambda _: finished)
    runner = Playing(
        store=store, record=record, experiment=record.plan.experiment, stages={}, sequential=referee, ui=ui
    )
    runner.slowness, runner.stops_after, runner.taken = slowness, stops_after, taken
    monkeypatch.setattr("pgdyno.conduct.runner.monotonic_s", lambda: runner.now_s)
    with contextlib.suppress(KeyboardInterrupt):
        runner.run()
    return referee, ui.said


class Erring(TrialRunner):
    """Runs no trial: it has the same error for all that fail."""

    error: PgdynoError


class Failing(Erring):
    """Runs no block: each fails with the error while variant B is in force."""

    def _try_block(self, step: Step, trial: PlannedTrial) -> tuple[TrialOutcome, str]:
        return TrialOutcome(record=build_data(trial).record, error=self.error, tps=None, latency_ms=None), "B"


def fail(
    kind: type[Erring], folder: Path, record: StudyRecord, error: PgdynoError
) -> tuple[SequentialComparison, list[str]]:
    """Run a record's trials, which fail, until that ends the study; gives the comparison and what the user is told."""
    store, referee, ui = RecordStore(folder), build_referee(record), Listening()
    store.create(record, study_toml="")
    assert record.plan.experiment is not None
    runner = kind(store=store, record=record, experiment=record.plan.experiment, stages={}, sequential=referee, ui=ui)
    runner.error = error
    with pytest.raises(type(error)):
        runner.run()
    return referee, ui.said


@pytest.mark.parametrize(
    ("error", "is_own"), [(StepFailedError("pgbench failed"), True), (LostLogError("its reader has ended"), False)]
)
def test_a_variant_is_given_up_for_its_own_failures_alone(tmp_path: Path, error: StepFailedError, is_own: bool) -> None:
    referee, said = fail(Failing, tmp_path / "record", build_record("switchback", "A", "B", "C"), error)
    assert any(words.startswith("B is given up, the others go on") for words in said) is is_own
    assert referee.undecided("tpcb-like") == (("C",) if is_own else ("B", "C"))


class Refusing(Erring):
    """Takes the trials of the reference, and has the others refused with the error."""

    def _try_single(self, step: Step, trial: PlannedTrial) -> tuple[TrialOutcome, str]:
        (variant,) = trial.variants
        error = None if variant == "A" else self.error
        return TrialOutcome(record=build_data(trial).record, error=error, tps=None, latency_ms=None), variant

    def _take(self, trial: PlannedTrial, outcome: TrialOutcome) -> None:
        self._sequential.take(build_data(trial))


@pytest.mark.parametrize(
    "error",
    [
        HostError("the server holds too much data"),
        HostError("another pgdyno on this kernel is changing vm.swappiness"),
        RefusedValueError("the kernel did not take vm.swappiness = 300"),
    ],
    ids=str,
)
def test_what_the_machine_refuses_ends_the_study_unless_it_is_a_variants_value(
    tmp_path: Path, error: HostError
) -> None:
    variants = [
        {"name": "A"},
        *({"name": name, "sysctl": {"vm.swappiness": value}} for name, value in (("B", 1), ("C", 2))),
    ]
    _, said = fail(Refusing, tmp_path / "record", build_record("paired", variant=variants), error)
    is_own = isinstance(error, RefusedValueError)
    assert any("is given up, the others go on" in words for words in said) is is_own


def test_a_comparison_that_gave_a_variant_up_is_not_finished(tmp_path: Path) -> None:
    record = build_record("paired", "A", "B")
    store = RecordStore(tmp_path / "record")
    refused = {"B": ErrorFact(fact="it ended")}
    store.create(msgspec.structs.replace(record, refused_variants=refused), study_toml="")
    assert not are_own_trials_finished(store)


ONE_S = {"duration": "1s", "warm_up": "0s"}


@pytest.mark.parametrize("until", [1, 2, 4, 5, 6])
def test_a_round_that_was_interrupted_is_left_out(tmp_path: Path, until: int) -> None:
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}], trials=ONE_S)
    store = store_rounds(tmp_path / "record", record, until=until, A=1000.0, B=1000.0)
    referee = build_referee(record)
    referee.take_finished(store)
    begun = record.plan.trials[until - 1].round
    left = [trial for trial in record.plan.trials if referee.is_left(trial)]
    assert left == [trial for trial in record.plan.trials if trial.round > begun]
    # It is under way again: what is left of the next one follows its first trial.
    referee.take(build_data(left[0]))
    assert [trial for trial in record.plan.trials if referee.is_left(trial)][:3] == left[:3]


# After both trials of the reference, or after the first trial of the round.
@pytest.mark.parametrize("until", [11, 10])
def test_what_was_interrupted_in_its_last_rounds_gets_those_that_a_verdict_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    design = {"design": "paired", "extra_rounds": False}
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}], trials=ONE_S, experiment=design)
    four = [step for step in record.plan.steps if step.trial is None or step.trial.round <= 4]
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, steps=tuple(four)))
    store = store_rounds(tmp_path / "record", record, until=until, A=1000.0, B=1000.0)
    assert not are_own_trials_finished(store)
    taken: list[TrialData] = []
    referee, said = play(store, monkeypatch, slowness=1.0, taken=taken)
    assert said[0] == "a round of tpcb-like was interrupted: one more is planned"
    assert [data.record.planned.round for data in taken] == [5, 5, 5]
    assert store.read_record().final_looks == {"tpcb-like": 15}
    verdict = referee.compare_workload("tpcb-like").questions[0].verdict
    assert isinstance(verdict.final_look, FinalLook)
    assert (verdict.n, verdict.final_look.is_made) == (4, True)
    again, told = play(store, monkeypatch, slowness=1.0, taken=taken)
    assert (again.list_lacking(), told) == ([], [])


@pytest.mark.parametrize("rounds", [5, 6])
def test_what_was_given_up_in_a_sweep_is_tried_again_without_more_rounds(tmp_path: Path, rounds: int) -> None:
    """Clients 1 to 4 are settled after five rounds."""
    sweep = [{"name": "clients", "levels": [1, 2, 4, 8]}]
    record = build_record("paired", variant=[], sweep=sweep, workload=[{"name": "tpcb-like"}], trials=ONE_S)
    kept = [step for step in record.plan.steps if step.trial is None or step.trial.round <= rounds]
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, steps=tuple(kept)))
    tps = {f"clients={clients}": 1000.0 * clients for clients in (1, 2, 4)}
    store = store_rounds(tmp_path / "record", record, given_up="clients=8", **tps)
    assert not are_own_trials_finished(store)
    referee = build_referee(record)
    referee.take_finished(store)
    assert referee.list_lacking() == []
    left = [trial for trial in record.plan.trials if trial.number not in store.finished_numbers()]
    tried = [trial for trial in left if referee.is_left(trial)]
    assert tried[0].variants == ("clients=8",)
    assert {trial.round for trial in tried} == {5, rounds}


def test_what_was_given_up_in_a_comparison_is_tried_again_from_the_next_round_on(tmp_path: Path) -> None:
    """In the last round it would make a pair with trials from before the break."""
    record = build_record("paired", "A", "B", "C", workload=[{"name": "tpcb-like"}], trials=ONE_S)
    store = store_rounds(tmp_path / "record", record, until=12, given_up="B", A=1000.0, C=1000.0)
    referee = build_referee(record)
    referee.take_finished(store)
    left = [trial for trial in record.plan.trials if referee.is_left(trial)]
    assert left == [trial for trial in record.plan.trials if trial.round > 3]
    assert ("B",) in {trial.variants for trial in left}


def test_what_was_tried_again_keeps_no_other_from_its_look_when_the_study_goes_on_once_more(tmp_path: Path) -> None:
    """Resumed twice: B was given up in the first four rounds of seven and ran in the last three, and C ran in all."""
    record = build_record("paired", "A", "B", "C", workload=[{"name": "tpcb-like"}], trials=ONE_S)
    kept = [step for step in record.plan.steps if step.trial is None or step.trial.round <= 7]
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, steps=tuple(kept)))
    store = store_rounds(tmp_path / "record", record, until=16, given_up="B", A=1000.0, C=1000.0)
    for _ in range(2):
        referee = build_referee(record)
        referee.take_finished(store)
        store_left(store, referee, record, A=1000.0, B=1000.0, C=1000.0)
        assert referee.find_due_looks() == {"tpcb-like": 28}


def test_the_look_is_made_when_the_time_is_over_and_the_questions_may_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}])
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    referee, said = play(store, monkeypatch, slowness=2.0)
    rounds = referee.compare_workload("tpcb-like").rounds
    assert 4 <= rounds < count_planned_rounds(record.plan)["tpcb-like"]
    assert store.read_record().final_looks == {"tpcb-like": 3 * rounds}
    assert [words.partition(":")[0] for words in said] == [
        "final look at tpcb-like",
        "the comparison's time is over, and not everything is decided",
    ]


BOTH = [{"name": "tpcb-like"}, {"name": "select-only"}]


def test_a_decided_workload_leaves_its_minutes_to_the_open_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = build_record("paired", "A", "B", workload=BOTH)
    planned = count_planned_rounds(record.plan)["tpcb-like"]
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    referee, said = play(store, monkeypatch, slowness=1.0)
    decided, opened = (referee.compare_workload(name).rounds for name in ("select-only", "tpcb-like"))
    assert decided < planned / 2
    # Two trials of the reference and one of the variant a round: what the one did not need, the other has had.
    assert opened == planned + (planned - decided)
    left = re.fullmatch(r"minutes are left: (\d+) more rounds? of tpcb-like", said[0])
    assert left is not None
    assert int(left[1]) == planned - decided
    assert said[1].startswith("final look at tpcb-like: ")
    kept = store.read_record()
    assert count_planned_rounds(kept.plan)["tpcb-like"] == opened
    assert kept.final_looks == {"tpcb-like": kept.plan.trials[-1].number}
    assert [trial.number for trial in kept.plan.trials] == list(range(1, len(kept.plan.trials) + 1))
    assert kept.plan.steps[-1].trial is None


def test_trials_that_are_fast_leave_minutes_until_no_round_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}])
    planned = count_planned_rounds(record.plan)["tpcb-like"]
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    referee, said = play(store, monkeypatch, slowness=0.5)
    assert planned * 1.9 < referee.compare_workload("tpcb-like").rounds <= planned * 2
    # As many as fit are planned at once: how long they take is known from those that ran.
    assert [words.startswith("minutes are left: ") for words in said] == [True, False]


@pytest.mark.parametrize("slowness", [0.6, 1.7, 4.0])
def test_turns_that_take_long_to_connect_end_near_their_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slowness: float
) -> None:
    modes = [{"name": "A", "mode": "simple"}, {"name": "B", "mode": "prepared"}]
    trials = {"duration": "4s", "warm_up": "2s"}
    record = build_record("live", workload=BOTH[:1], variant=modes, trials=trials, experiment={"minutes": 20})
    assert record.plan.experiment is not None
    assert record.plan.experiment.takes_turns
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    taken: list[TrialData] = []
    play(store, monkeypatch, slowness=slowness, taken=taken)
    steps = [step for step in store.read_record().plan.steps if step.trial]
    of_trial = {step.trial.number: 1.0 if step.trial.is_observed else slowness for step in steps if step.trial}
    seconds = {step.trial.number: of_trial[step.trial.number] * step.predicted_s for step in steps if step.trial}
    others_s = sum(step.predicted_s for step in record.plan.steps if step.trial is None)
    spent_s = others_s + sum(seconds[data.record.planned.number] for data in taken)
    assert abs(spent_s - 1200.0) <= 3 * max(seconds.values())


def test_a_study_that_is_stopped_in_its_extra_rounds_gets_no_second_share_of_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = build_record("paired", "A", "B", workload=BOTH)
    planned = record.plan.trials[-1].number
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    taken: list[TrialData] = []
    for stops_after in (planned + 2, planned + 13, 10_000):
        play(store, monkeypatch, slowness=1.0, stops_after=stops_after, taken=taken)
    assert store.read_record().plan.first_extra == planned + 1
    seconds = {step.trial.number: step.predicted_s for step in store.read_record().plan.steps if step.trial}
    trials_s = sum(step.predicted_s for step in record.plan.steps if step.trial)
    round_s = 3 * seconds[planned + 1]
    spent_s = sum(seconds[data.record.planned.number] for data in taken)
    assert trials_s - round_s < spent_s <= trials_s + round_s
    assert store.read_record().final_looks == {"tpcb-like": taken[-1].record.planned.number}


def test_who_asks_for_rounds_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = build_record(
        "paired", "A", "B", workload=[{"name": "tpcb-like"}], experiment={"design": "paired", "extra_rounds": False}
    )
    store = RecordStore(tmp_path / "record")
    store.create(record, study_toml="")
    referee, _ = play(store, monkeypatch, slowness=0.5)
    assert referee.compare_workload("tpcb-like").rounds == count_planned_rounds(record.plan)["tpcb-like"]


def test_ctrl_c_in_an_extra_round_keeps_it_for_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = build_record("paired", "A", "B", workload=BOTH)
    whole, parted = RecordStore(tmp_path / "whole"), RecordStore(tmp_path / "parted")
    for store in (whole, parted):
        store.create(record, study_toml="")
    play(whole, monkeypatch, slowness=1.0)
    last = len(record.plan.trials)
    play(parted, monkeypatch, slowness=1.0, stops_after=last + 2)
    kept = parted.read_record()
    assert kept.plan == whole.read_record().plan
    assert kept.final_looks is msgspec.UNSET
    assert last < len(kept.plan.trials)


def test_ctrl_c_makes_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordStore(tmp_path / "record")
    store.create(build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}]), study_toml="")
    referee, said = play(store, monkeypatch, slowness=1.0, stops_after=24)
    assert referee.compare_workload("tpcb-like").rounds == 8
    assert store.read_record().final_looks is msgspec.UNSET
    assert said == []


def test_a_study_that_is_decided_makes_no_look(tmp_path: Path) -> None:
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}])
    store = store_rounds(tmp_path / "record", record, A=1000.0, B=2000.0)
    assert conduct(store) == []
    assert store.read_record().final_looks is msgspec.UNSET
    assert "final_looks" not in (tmp_path / "record" / "record.json").read_text()


# -- Words -----------------------------------------------------------------------------------------------------------


def test_how_things_stand_in_a_line() -> None:
    record = build_record("switchback", "A", "B")
    referee = build_referee(record)

    def tell(rounds: list[Round]) -> str:
        return describe_progress(referee.compare_workload("tpcb-like", rounds))

    rounds = [build_round(n, {"A": [{"tps": 100.0 + n % 2}] * 2, "B": [{"tps": 150.0 - n % 2}]}) for n in range(12)]
    assert tell([]) == "B inconclusive (0 pairs)"
    assert tell(rounds[:1]) == "B inconclusive (1 pair)"
    assert tell(rounds).startswith("B faster +48.8 % [+")
    assert tell(rounds).endswith("] (12 pairs)")


def test_names_that_differ_in_the_middle_are_told_apart() -> None:
    base, change, third = (
        f"server=/home/runner/work/_temp/{name}/usr/local/pgsql/bin" for name in ("base", "base2", "c")
    )
    comparison = build_referee(build_record("switchback", base, change)).compare_workload("tpcb-like")
    assert describe_progress(comparison) == "…base2… inconclusive (0 pairs)"
    assert [shorten(name, (base, change, third)) for name in (base, change, third)] == ["…base…", "…base2…", "…c…"]
    assert shorten(base) == shorten(base, ("x",)) == "server=/home/ru…/local/pgsql/bin"


def test_the_line_says_what_the_planned_pairs_would_show() -> None:
    record = build_record("paired", "A", "B", workload=[{"name": "tpcb-like"}])
    planned = count_planned_rounds(record.plan)["tpcb-like"]
    referee = build_referee(record)
    rounds = [build_round(n, {"A": [{"tps": 100.0 + 9 * (n % 2)}] * 2, "B": [{"tps": 104.0}]}) for n in range(5)]
    few = describe_progress(referee.compare_workload("tpcb-like", rounds[:3]))
    assert few.endswith("(3 pairs)"), few
    line = describe_progress(referee.compare_workload("tpcb-like", rounds))
    assert re.search(rf"\(5 pairs; {planned} would show ±\d+ %\)$", line), line
    # After one pair the spread is not known.
    assert describe_progress(referee.compare_workload("tpcb-like", rounds[:1])) == "B inconclusive (1 pair)"


def test_of_many_variants_only_how_many_are_open() -> None:
    record = build_record("switchback", *"ABCDEF")
    comparison = build_referee(record).compare_workload("tpcb-like")
    assert describe_progress(comparison) == "5 of 5 variants undecided after 0 rounds"


def test_a_sweep_over_clients_stands_in_loads() -> None:
    assert describe_loads(3, 8) == "3 of 8 numbers of clients need more rounds"
    assert describe_loads(0, 8) == "no number of clients needs more rounds"
