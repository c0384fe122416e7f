"""What a failover's files show, planted: the time without service, its parts, and what was lost."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.analyse.episodes.halts import find_halts
from pgdyno.analyse.failover import (
    FailoverFigures,
    FailoverSummary,
    list_metrics,
    measure_failover,
    summarise_failovers,
)
from pgdyno.record.failover import FailoverRecord, Probes, read_probes
from pgdyno.record.serverlog import parse_serverlog
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import FailoverData, TrialData, read_trial_data
from pgdyno.spec.failover import FailoverKind
from tests.analyse.planted_episodes import read_planted

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"
OFFSET_S = 1_795_000_000.0
# As PostgreSQL 18 logs a promotion; the read-only message is of its time as a standby.
LOG = """\
1795000100.000|7|postmaster|00000|LOG:  database system is ready to accept read-only connections
1795000200.100|8|startup|00000|LOG:  received promote request
1795000200.130|8|startup|00000|LOG:  redo done at 0/4C26B48 system usage: CPU: user: 0.05 s, system: 0.05 s, elapsed: 9.04 s
1795000200.140|8|startup|00000|LOG:  selected new timeline ID: 2
1795000200.160|8|startup|00000|LOG:  archive recovery complete
1795000200.300|7|postmaster|00000|LOG:  database system is ready to accept connections
"""


def make_data(*, missing: tuple[int, ...] = (), history: int | None = None) -> TrialData:
    """Writes 1 to 10 are confirmed every 10 ms until 200.05 s, 11 to 40 fail, and 41 to 50 are confirmed from 200.36 s on."""
    record = open_record(RECORD)
    trial = record.read_trials()[0]
    data = read_trial_data(record.trial_dir(1), trial)
    assert data.transactions is not None
    assert data.pgbench is not None
    assert data.pgbench.transaction_count is not None
    number = np.arange(1.0, 51.0)
    ended_s = 200.05 - 0.01 * (10 - number)
    ended_s[40:] = 200.36 + 0.01 * (number[40:] - 41)
    confirmed = np.where((number <= 10) | (number > 40), 1.0, 0.0)
    last_us = data.transactions.last_stamp_us
    assert last_us is not None
    shift_us = 450_000
    after = msgspec.structs.replace(data.transactions, first_stamp_us=last_us + shift_us)
    count = data.pgbench.transaction_count
    steps = FailoverRecord(
        kind=FailoverKind.CRASH,
        standby="standby1",
        told_s=200.055,
        gone_s=200.075,
        asked_s=200.1,
        connected_s=200.35,
        clock_offset_s=trial.clock_offset_s,
        unreplayed_bytes=4096,
        missing_probes=missing,
        history_before=None if history is None else 1_000,
        history_after=None if history is None else 1_000 + history,
    )
    return msgspec.structs.replace(
        data,
        failover=FailoverData(
            steps=steps,
            probes=Probes(number=number, sent_s=ended_s - 0.002, ended_s=ended_s, is_acknowledged=confirmed),
            after=msgspec.structs.replace(data.pgbench, transaction_count=count, tps=100.0),
            after_transactions=after,
            log=parse_serverlog(LOG, clock_offset_s=OFFSET_S),
        ),
    )


def measure(**planted: object) -> FailoverFigures:
    figures = measure_failover(make_data(**planted))  # type: ignore[arg-type]
    assert figures is not None
    return figures


def test_the_time_without_service_and_its_parts() -> None:
    figures = measure()
    assert figures.outage_s == pytest.approx(0.31)
    assert figures.load_outage_s == pytest.approx(0.45)
    assert figures.noticed_s == pytest.approx(0.005)
    assert figures.ending_s == pytest.approx(0.02)
    assert figures.replay_s == pytest.approx(0.03, abs=1e-6)
    assert figures.promotion_s == pytest.approx(0.2, abs=1e-6)
    assert figures.first_write_s == pytest.approx(0.06, abs=1e-6)
    assert list_metrics(figures) == pytest.approx(
        {"outage_s": 0.31, "load_outage_s": 0.45, "promotion_s": 0.2}, abs=1e-6
    )
    assert list_metrics(None) == {}


@pytest.mark.parametrize(("at_s", "is_met"), [(199.0, True), (201.0, False), (150.0, False)])
def test_a_halt_of_the_machine_is_no_time_without_service(at_s: float, is_met: bool) -> None:
    """Of 5 s, after which its samples go on as if there had been none."""
    samples = read_planted("quiet").os
    assert samples is not None
    t_s = samples.frame["t_s"].to_numpy()
    shifted_s = t_s - t_s[1] + at_s + np.where(np.arange(len(t_s)) > 1, 5.0, 0.0)
    halted = msgspec.structs.replace(samples, frame=samples.frame.with_columns(pl.Series("t_s", shifted_s)))
    data = msgspec.structs.replace(make_data(), os=halted)
    assert [round(halt.from_s) for halt in find_halts(data)] == [at_s]
    figures = measure_failover(data)
    assert figures is not None
    assert (figures.outage_s is None, figures.load_outage_s is None) == (is_met, is_met)


def test_only_what_was_confirmed_can_be_lost() -> None:
    count = make_data().transaction_count
    assert count is not None
    # Writes 11 to 40 were never confirmed; 9 and 10 were.
    figures = measure(missing=(9, 10, *range(11, 41)), history=2 * count - 3)
    assert (figures.lost_probes, figures.lost_transactions) == (2, 3)
    # Committed and not yet confirmed: more rows than pgbench knows of.
    figures = measure(missing=tuple(range(11, 41)), history=2 * count + 2)
    assert (figures.lost_probes, figures.lost_transactions) == (0, 0)
    assert measure().lost_transactions is None


def test_several_failovers_have_an_interval_and_sums_of_losses() -> None:
    seen = [
        msgspec.structs.replace(measure(), outage_s=seconds, lost_probes=lost, replay_s=0.0)
        for seconds, lost in ((0.2, 0), (0.4, 3), (0.3, 0))
    ]
    summary = summarise_failovers([*zip(seen, (1, 2, 3), strict=True)])
    outage = summary.seconds["outage_s"]
    assert outage.value == pytest.approx((0.2 * 0.4 * 0.3) ** (1 / 3))
    assert outage.low is not None
    assert outage.high is not None
    assert 0 < outage.low < 0.2
    assert outage.high > 0.4
    assert (summary.longest_s, summary.failovers, summary.losing_failovers, summary.lost_probes) == (0.4, 3, 1, 3)
    assert summary.lost_transactions is None
    # A part shorter than the log's millisecond is no gap.
    assert summary.seconds["replay_s"].value == 0.0


@pytest.mark.parametrize(("name", "step_s"), [("promotion_s", 0.002), ("replay_s", 0.002), ("first_write_s", 0.001)])
def test_parts_that_the_log_rounds_alike_have_an_interval(name: str, step_s: float) -> None:
    seen = [(msgspec.structs.replace(measure(), **{name: 0.012}), number) for number in (1, 2, 3)]
    part = summarise_failovers(seen).seconds[name]
    assert part.low is not None
    # Student's quantile of two degrees of freedom.
    half_s = 4.303 * step_s / math.sqrt(12) / math.sqrt(3)
    assert (part.value, part.low, part.high) == pytest.approx((0.012, 0.012 - half_s, 0.012 + half_s), rel=1e-3)


def test_failovers_of_the_reference_in_one_round_count_as_one() -> None:
    def summarise(*outages_s: float, rounds: tuple[int, ...]) -> FailoverSummary:
        seen = [
            msgspec.structs.replace(measure(), outage_s=seconds, ending_s=seconds, lost_probes=1)
            for seconds in outages_s
        ]
        return summarise_failovers([*zip(seen, rounds, strict=True)])

    # As far apart as only rounds are.
    twice = summarise(0.2, 0.2, 0.4, 0.4, 0.3, 0.3, rounds=(1, 1, 2, 2, 3, 3))
    once = summarise(0.2, 0.4, 0.3, rounds=(1, 2, 3))
    for name in ("outage_s", "ending_s"):
        assert twice.seconds[name].n == once.seconds[name].n == 3
        assert twice.seconds[name].low == pytest.approx(once.seconds[name].low)
        assert twice.seconds[name].high == pytest.approx(once.seconds[name].high)
    # What was lost is counted, not estimated.
    assert (twice.failovers, twice.losing_failovers, twice.lost_probes) == (6, 6, 6)


def test_without_a_first_write_afterwards_there_is_no_time() -> None:
    data = make_data()
    assert data.failover is not None
    probes = data.failover.probes
    cut = Probes(
        number=probes.number[:30],
        sent_s=probes.sent_s[:30],
        ended_s=probes.ended_s[:30],
        is_acknowledged=probes.is_acknowledged[:30],
    )
    figures = measure_failover(
        msgspec.structs.replace(data, failover=msgspec.structs.replace(data.failover, probes=cut))
    )
    assert figures is not None
    assert figures.outage_s is None
    assert figures.noticed_s is not None


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "probes.jsonl").write_text('{"format":1}\n[1,10.0,10.1]\n[2,10.2,10.3,"refused"]\n[3,10.')
    probes = read_probes(tmp_path)
    assert probes.number.tolist() == [1, 2]
    assert probes.is_acknowledged.tolist() == [1, 0]
