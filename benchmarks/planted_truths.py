"""Questions whose answer is no longer in doubt, asked again and again: is it found, how soon, and the same each time?

What the answer is comes from theory (synchronous_commit, commit_delay, shared_buffers far too small), or is measured
first, by switchbacks of several minutes that no verdict ends: how much of the server's time extra rows take, and what
wal_compression does to TPS here. Their intervals are Student's over pairs, whose number was fixed beforehand.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from figures import say, say_share
from scipy import stats
from server_verdicts import Answer, Answers, Asked, Bench, ask_all, say_quantiles

from pgdyno.analyse.comparison.answers import compare
from pgdyno.analyse.comparison.rounds import rounds_of_block
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.plan.order import draw_orders
from pgdyno.record.durable import write_durably
from pgdyno.record.transactions.slices import Slice, SlicePhase
from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.switchback import SliceRound
from pgdyno.run.trial import run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study

FALL = 0.05
FIRST_ROWS = 1000
TRUTH_SLICE_S = 0.5
TRUTH_MINUTES = 4.5
WITHIN_MINUTES = 3.0
WAL_WITHIN_S = 60.0
DELTA = 0.03
EXTRA = {"name": "extra rows", "scripts": ["extra_rows.sql"], "mode": "prepared", "clients": 8}
TPCB = {"name": "tpcb-like", "mode": "prepared", "clients": 8}
THREE_TIMES = ("synchronous_commit", "wal_compression", "commit_delay")


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """A measured effect on TPS, as a ratio less one, with its 95 % interval over n pairs."""

    effect_ratio: float
    low_ratio: float
    high_ratio: float
    n: int
    rows: int | None = None
    """That were found to take so much."""


class Unstopped:
    """A `run.switchback.Steering` that asks nobody whether it is enough."""

    def __init__(self, variants: tuple[str, ...], seed: int) -> None:
        self._variants = [variants[0], *variants]
        self._draw = random.Random(seed)
        self._orders: list[list[str]] = []

    def next_round(self, slices: Sequence[Slice]) -> SliceRound:
        """All variants, in balanced order."""
        del slices
        self._orders = self._orders or draw_orders(self._variants, self._draw)
        return SliceRound(phase=SlicePhase.ROUND, variants=tuple(self._orders.pop()), slice_s=TRUTH_SLICE_S)

    def review(self, folder: Path, slices: Sequence[Slice]) -> None:
        """Look at nothing."""
        del folder, slices


def find_truth(bench: Bench, raw: dict) -> Truth:
    """The effect on TPS of a study's second variant, from all blocks of its plan."""
    raw = {**raw, "experiment": {**raw["experiment"], "slice": f"{TRUTH_SLICE_S}s"}}
    study = make_study(raw, source="truth", folder=Path(__file__).parent)
    plan, server, dataset = bench.prepare(study)
    assert plan.experiment is not None
    stage = TrialStage(
        server=server,
        generator=server.make_generator(),
        dataset=dataset,
        study=study,
        plan=plan,
        settings=plan.experiment.reference.server.settings,
        cpu_count=bench.host.usable_cpu_count,
    )
    rounds = []
    for trial in plan.trials:
        folder = Path(tempfile.mkdtemp(dir=bench.folder))
        folder.chmod(0o755)
        schedule = Unstopped(trial.variants, trial.seed)
        done = run_trial(
            stage, trial, folder=folder, on_activity=lambda _: None, on_load=lambda _: None, schedule=schedule
        )
        if done.error is not None:
            raise done.error
        rounds.extend(rounds_of_block(read_trial_data(folder, done.record)))
        shutil.rmtree(folder)
    workload = plan.workloads[0].name
    (comparison,) = compare({workload: rounds}, plan.experiment, primary={workload: "tps"}, metrics=("tps",))
    pairs = comparison.questions[0].log_ratios
    half = stats.t.ppf(0.975, len(pairs) - 1) * np.std(pairs, ddof=1) / math.sqrt(len(pairs))
    mean = float(np.mean(pairs))
    return Truth(
        effect_ratio=math.expm1(mean),
        low_ratio=math.expm1(mean - half),
        high_ratio=math.expm1(mean + half),
        n=len(pairs),
    )


def calibrate_rows(bench: Bench) -> Truth:
    """How many rows slow the load by FALL: its time per transaction grows in proportion to them. Then what they do."""
    first = find_truth(bench, extra_rows(FIRST_ROWS, seed=1, minutes=1.0))
    rows = round(FIRST_ROWS * (1 / (1 - FALL) - 1) / (1 / (1 + first.effect_ratio) - 1))
    print(f"{FIRST_ROWS} rows: {first.effect_ratio:+.1%}; to be asked for: {rows} rows", flush=True)
    return msgspec.structs.replace(find_truth(bench, extra_rows(rows, seed=2, minutes=TRUTH_MINUTES)), rows=rows)


def compose(
    workload: dict, name: str, values: Sequence[str | int], *, scale: int, seed: int, minutes: float, **others: dict
) -> dict:
    """The study of one setting with two values."""
    return {
        "data": {"scale": scale},
        "workload": [workload],
        "trials": {"duration": "5s", "warm_up": "2s", "seed": seed},
        "variant": [{"name": f"{name}={value}", "settings": {name: value}} for value in values],
        **others,
        "experiment": {"minutes": minutes, **others.get("experiment", {})},
    }


def extra_rows(rows: int, *, seed: int, minutes: float) -> dict:
    # An extension's setting could act whenever it likes: only we know that this one acts at once.
    experiment = {"design": "switchback"}
    return compose(EXTRA, "bench.rows", [0, rows], scale=10, seed=seed, minutes=minutes, experiment=experiment)


def synchronous_commit(*, seed: int, minutes: float) -> dict:
    return compose(TPCB, "synchronous_commit", ["on", "off"], scale=20, seed=seed, minutes=minutes)


def commit_delay(*, seed: int, minutes: float) -> dict:
    return compose(TPCB, "commit_delay", [0, 1000], scale=20, seed=seed, minutes=minutes)


def wal_compression(*, seed: int, minutes: float) -> dict:
    # Of so much data a block does not touch every page, so that images of whole pages do not come to an end.
    return compose(TPCB, "wal_compression", ["off", "pglz"], scale=50, seed=seed, minutes=minutes)


def shared_buffers(*, seed: int, minutes: float) -> dict:
    workload = {"name": "select-only", "mode": "prepared", "clients": 8}
    return compose(workload, "shared_buffers", ["16MB", "512MB"], scale=25, seed=seed, minutes=minutes)


COMPOSE = {
    "synchronous_commit": synchronous_commit,
    "commit_delay": commit_delay,
    "wal_compression": wal_compression,
    "shared_buffers": shared_buffers,
}
BUDGETS_MINUTES = (
    ("synchronous_commit", 3.0),
    ("extra_rows", 4.0),
    ("commit_delay", 3.0),
    ("wal_compression", 2.5),
    ("extra_rows", 4.0),
    ("shared_buffers", 5.0),
)
"""In the order of asking."""


def ask_planted(bench: Bench, times: int, seed: int, answers: Answers) -> None:
    """Measure what must be known first, then ask in turn, so that what is broken off has asked each equally often."""
    truths = read_truths(bench.folder)
    if "extra_rows" not in truths:
        truths["extra_rows"] = calibrate_rows(bench)
        write_truths(bench.folder, truths)
    if "wal_compression" not in truths:
        truths["wal_compression"] = find_truth(bench, wal_compression(seed=3, minutes=TRUTH_MINUTES))
        write_truths(bench.folder, truths)
    for subject, truth in truths.items():
        print(f"{subject}: {truth.effect_ratio:+.2%} [{truth.low_ratio:+.2%}, {truth.high_ratio:+.2%}]", flush=True)
    rows = truths["extra_rows"].rows or 0
    questions = []
    draw = random.Random(f"planted {seed}")
    for _ in range(times):
        for subject, minutes in BUDGETS_MINUTES:
            own_seed = draw.randrange(2**31)
            make = COMPOSE.get(subject)
            raw = make(seed=own_seed, minutes=minutes) if make else extra_rows(rows, seed=own_seed, minutes=minutes)
            name = f"{subject}-{seed}-{len(questions) + 1}"
            questions.append(Asked(name=name, subject=subject, words=raw["workload"][0]["name"], raw=raw))
    ask_all(bench, questions, answers)


def read_truths(folder: Path) -> dict[str, Truth]:
    path = folder / "truths.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Truth]) if path.exists() else {}


def write_truths(folder: Path, truths: dict[str, Truth]) -> None:
    write_durably(folder / "truths.json", msgspec.json.encode(truths))


def find_right(subject: str, truths: dict[str, Truth]) -> frozenset[VerdictKind]:
    """The verdicts on TPS that are not false."""
    known = {
        "synchronous_commit": VerdictKind.FASTER,
        "commit_delay": VerdictKind.SLOWER,
        "shared_buffers": VerdictKind.FASTER,
        "extra_rows": VerdictKind.SLOWER,
    }
    if subject in known:
        return frozenset({known[subject]})
    truth = truths[subject]
    right = set()
    if truth.high_ratio > 0:
        right.add(VerdictKind.FASTER)
    if truth.low_ratio < 0:
        right.add(VerdictKind.SLOWER)
    if truth.low_ratio < DELTA and truth.high_ratio > 1 / (1 + DELTA) - 1:
        right.add(VerdictKind.EQUIVALENT)
    return frozenset(right)


def say_planted(answers: Sequence[Answer], folder: Path) -> None:
    truths = read_truths(folder)
    for subject, truth in truths.items():
        name = f"verdicts.server.truth.{subject}.tps_effect"
        say(name, truth.effect_ratio, low=truth.low_ratio, high=truth.high_ratio, unit="ratio", n=truth.n)
        if truth.rows is not None:
            say(f"verdicts.server.truth.{subject}.rows", truth.rows, unit="count", n=truth.n)
    for subject in dict.fromkeys(answer.subject for answer in answers):
        own = [answer for answer in answers if answer.subject == subject]
        say_subject(f"verdicts.server.planted.{subject}", own, find_right(subject, truths))
    by_subject = {subject: [a for a in answers if a.subject == subject and a.tps][:3] for subject in THREE_TIMES}
    thrice = [{a.tps.verdict for a in own} for own in by_subject.values() if len(own) == 3]
    say_share("verdicts.server.same_verdict_three_times", [len(kinds) == 1 for kinds in thrice], target=">= 1")
    opposite = {VerdictKind.FASTER, VerdictKind.SLOWER}
    say_share("verdicts.server.opposite_verdicts_in_three", [kinds >= opposite for kinds in thrice], target="<= 0")


def say_subject(name: str, own: Sequence[Answer], right: frozenset[VerdictKind]) -> None:
    kinds = [answer.tps.verdict if answer.tps else None for answer in own]
    say_share(f"{name}.right", [kind in right for kind in kinds])
    is_false = [kind not in right and kind not in {None, VerdictKind.INCONCLUSIVE} for kind in kinds]
    say_share(f"{name}.false", is_false)
    minutes = [
        math.inf if kind in {None, VerdictKind.INCONCLUSIVE} else answer.taken_s / 60
        for answer, kind in zip(own, kinds, strict=True)
    ]
    is_five_percent = name.endswith("extra_rows")
    say_median(f"{name}.minutes_to_verdict", minutes, target=f"<= {WITHIN_MINUTES}" if is_five_percent else None)
    loads = [answer.tps.decided_after_s if answer.tps else None for answer in own]
    say_median(f"{name}.load_minutes_to_verdict", [math.inf if s is None else s / 60 for s in loads])
    spreads = [answer.tps.pair_sd for answer in own if answer.tps and answer.tps.pair_sd]
    say_quantiles(f"{name}.pair_sd", spreads, unit="ratio")
    say_quantiles(f"{name}.taken_to_announced", [a.taken_s / a.announced_s for a in own], unit="ratio")
    ratios = [a.trials_s / a.announced_trials_s for a in own if a.announced_trials_s]
    say_quantiles(f"{name}.trials_taken_to_announced", ratios, unit="ratio")
    if name.endswith("wal_compression"):
        wal = [answer.metrics.get("wal_bytes") for answer in own]
        say_share(f"{name}.wal_bytes_less", [m is not None and m.verdict is VerdictKind.LESS for m in wal])
        is_soon = [
            m is not None and m.verdict is VerdictKind.LESS and (m.decided_after_s or math.inf) <= WAL_WITHIN_S
            for m in wal
        ]
        say_share(f"{name}.wal_bytes_less_within_a_minute", is_soon, target=">= 1")


def say_median(name: str, values: Sequence[float], *, target: str | None = None) -> None:
    """The median with its interval by order statistics; what was never decided took for ever."""
    if not values:
        return
    median = float(np.quantile(values, 0.5, method="higher"))
    ends = stats.quantile_test(values, p=0.5).confidence_interval(0.95) if len(values) > 5 else (math.nan, math.nan)
    low, high = (float(end) if math.isfinite(end) else None for end in ends)
    if math.isfinite(median):
        say(f"{name}.median", median, low=low, high=high, unit="minutes", n=len(values), target=target)
    else:
        print(f"{name}: fewer than half were decided")
