"""A search over trials: what they count, which rate comes next, and what is known when."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.search.latency_limit import RateVerdict
from pgdyno.analyse.search.misses import count_misses
from pgdyno.analyse.search.rate_search import WorkloadSearch
from pgdyno.plan.search import CAPACITY_ROUNDS
from pgdyno.record.generators.logs import ScheduleEnd
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import TrialStatus
from tests.analyse.searches import SEARCH, Machine, make_misses, run_search

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"


def build_data(
    *,
    skipped: int = 30,
    late: int = 20,
    last_s: float | tuple[float, float] = 10.0,
    free_s: float | None = 10.0,
    **changes: object,
) -> TrialData:
    """A finished trial of 10 s at 100 TPS, the last start of whose schedule was taken at `last_s`; two are of hosts with a quarter and the rest.

    The first of the clients was done at `free_s`, which a log that is a sample does not tell.
    """
    trial = open_record(RECORD).read_trials()[0]
    data = read_trial_data(RECORD / "trials" / "0001", trial)
    assert data.pgbench is not None
    assert data.load_start_epoch_s is not None
    planned = msgspec.structs.replace(trial.planned, rate_tps=100.0, duration_s=10.0)
    counts = {"transaction_count": 960, "above_limit_count": late, "skipped_count": skipped, "failed_count": 10}
    summary = msgspec.structs.replace(data.pgbench, **{**counts, **changes})
    ends = zip(last_s, (0.25, 0.75), strict=True) if isinstance(last_s, tuple) else [(last_s, 1.0)]
    return msgspec.structs.replace(
        data,
        record=msgspec.structs.replace(trial, planned=planned),
        pgbench=summary,
        schedule_ends=tuple(
            ScheduleEnd(
                last_epoch_s=data.load_start_epoch_s + one_s,
                free_epoch_s=None if free_s is None else data.load_start_epoch_s + free_s,
                share_ratio=share,
            )
            for one_s, share in ends
        ),
    )


def test_all_that_was_scheduled_counts() -> None:
    misses = count_misses(build_data(), limit_ms=20.0, percentile=99.0)
    assert misses is not None
    assert misses.scheduled_count == 960 + 30 + 10
    assert misses.missed_count == 20 + 30 + 10
    assert misses.share_ratio == pytest.approx(0.06)
    # Four in a hundred never ended: p99 of all that were scheduled has no latency.
    assert misses.latency_ms is None
    assert misses.latency_reason == "more transactions were skipped, failed or never started than the percentile allows"
    rare = count_misses(build_data(skipped=0, failed_count=0), limit_ms=20.0, percentile=99.99)
    assert rare is not None
    assert rare.latency_reason is not None
    assert rare.latency_reason.startswith("too few transactions for p99.99")
    unread = count_misses(
        msgspec.structs.replace(build_data(skipped=0, failed_count=0), transactions=None),
        limit_ms=20.0,
        percentile=90.0,
    )
    assert unread is not None
    assert unread.latency_reason == "the log of transactions could not be read"
    few = count_misses(build_data(skipped=0, late=0, failed_count=0), limit_ms=20.0, percentile=90.0)
    assert few is not None
    assert few.latency_ms is not None
    assert few.latency_reason is None
    assert few.share_ratio == 0.0
    assert few.positive_share_ratio == 0.5 / 960


@pytest.mark.parametrize(
    ("last_s", "free_s", "unbegun"),
    [(9.0, 10.0, 98.0), (9.0, None, 98.0), (9.99, 10.0, 0.0), (9.0, 9.99, 0.0), (-1e9, 10.0, 998.0)],
)
def test_what_was_never_begun_is_a_miss_once_its_limit_is_over_unless_a_client_was_free(
    last_s: float, free_s: float | None, unbegun: float
) -> None:
    misses = count_misses(build_data(last_s=last_s, free_s=free_s), limit_ms=20.0, percentile=99.0)
    assert misses is not None
    assert misses.unbegun_count == pytest.approx(unbegun)


def test_what_was_skipped_after_the_end_was_never_asked_for() -> None:
    misses = count_misses(build_data(last_s=10.2), limit_ms=20.0, percentile=99.0)
    assert misses is not None
    assert misses.skipped_count == pytest.approx(10.0)
    assert misses.scheduled_count == pytest.approx(980.0)


@pytest.mark.parametrize(
    ("last_s", "skipped", "unbegun"),
    [((8.98, 10.0), 30.0, 25.0), ((10.0, 8.98), 30.0, 75.0), ((10.4, 8.98), 20.0, 75.0), ((8.98, 10.2), 15.0, 25.0)],
)
def test_each_host_has_a_schedule_of_its_own(last_s: tuple[float, float], skipped: float, unbegun: float) -> None:
    misses = count_misses(build_data(last_s=last_s), limit_ms=20.0, percentile=99.0)
    assert misses is not None
    assert (misses.skipped_count, misses.unbegun_count) == (pytest.approx(skipped), pytest.approx(unbegun))


def test_a_trial_without_all_counts_is_not_judged() -> None:
    data = build_data()
    closed = msgspec.structs.replace(data.record.planned, rate_tps=None)
    for other in (
        msgspec.structs.replace(data, schedule_ends=()),
        msgspec.structs.replace(data, pgbench=None),
        build_data(above_limit_count=None),
        msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, planned=closed)),
        msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, status=TrialStatus.FAILED)),
    ):
        assert count_misses(other, limit_ms=20.0, percentile=99.0) is None
    none_ended = count_misses(build_data(transaction_count=0, above_limit_count=None), limit_ms=20.0, percentile=99.0)
    assert none_ended is not None
    assert none_ended.share_ratio == 1.0


def test_the_closed_loop_comes_first_and_brackets_the_rates() -> None:
    seeker = WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        wanted = seeker.next_trial()
        assert wanted is not None
        assert wanted.rate_tps is None
        assert seeker.state().answer is None
        seeker.add_capacity(1000.0)
    stand, wanted = seeker.state(), seeker.next_trial()
    assert stand.highest_tps == 1200.0
    assert stand.lowest_tps is not None
    assert 100.0 <= stand.lowest_tps < 110.0
    assert wanted is not None
    assert wanted.rate_tps is not None
    assert 400.0 < wanted.rate_tps < 900.0


def test_a_slow_server_gets_longer_trials() -> None:
    seeker = WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        seeker.add_capacity(40.0)
    wanted = seeker.next_trial()
    assert wanted is not None
    assert wanted.duration_s == 100.0


def test_a_server_that_does_nothing_has_no_rate() -> None:
    seeker = WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        seeker.add_capacity(None)
    assert seeker.next_trial() is None
    assert seeker.state().answer is None
    assert not seeker.state().is_settled


def test_a_search_that_is_taken_up_again_goes_on_as_if_it_had_never_stopped() -> None:
    whole = run_search(Machine(limit_tps=640.0), seed=7)[-1]
    again, read = (WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0) for _ in range(2))
    for _ in range(CAPACITY_ROUNDS):
        again.add_capacity(whole.capacity.value)
        read.add_capacity(whole.capacity.value)
    trials = sorted((trial for level in whole.levels for trial in level.trials), key=lambda trial: trial.number)
    for trial in trials:
        wanted = again.next_trial()
        assert wanted is not None
        assert wanted.rate_tps == trial.misses.rate_tps
        again.add_misses(trial.misses, number=trial.number, length_s=trial.length_s)
        read.add_misses(trial.misses, number=trial.number, length_s=trial.length_s)
    assert again.next_trial() is None
    assert again.state().answer == read.state().answer == whole.answer


def test_levels_are_the_rates_that_were_tried_with_all_their_trials() -> None:
    stand = run_search(Machine(limit_tps=640.0), seed=7)[-1]
    assert stand.is_settled
    assert [level.rate_tps for level in stand.levels] == sorted({level.rate_tps for level in stand.levels})
    assert stand.answer is not None
    assert sum(len(level.trials) for level in stand.levels) == stand.answer.n
    verdicts = [level.verdict for level in stand.levels]
    assert verdicts == sorted(verdicts, key=[RateVerdict.HOLDS, RateVerdict.UNDECIDED, RateVerdict.FAILS].index)
    assert stand.trial_s == 16.0


def test_a_rate_that_is_not_planned_any_more_stays() -> None:
    seeker = WorkloadSearch("tpcb-like", SEARCH, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        seeker.add_capacity(1000.0)
    seeker.add_misses(make_misses(333.3, 400.0), number=4, length_s=16.0)
    (level,) = seeker.state().levels
    assert (level.rate_tps, level.held_count) == (333.3, 1)
