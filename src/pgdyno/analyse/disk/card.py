"""Estimate the figures of a disk card from its runs: each job over its rounds, plateaus over depth, drift, noise.

The round is the unit of estimates; parts of one run are not a sample. Rates and latencies are geometric means with
Student's interval on logarithms. A single round has no interval.

A plateau begins at the smallest depth from which every deeper one certainly gains less than `PLATEAU_GAIN`. Depths are
tested from the deepest down, and the first that fails ends the plateau: with this fixed order, the number of tests
needs no correction. A fade is the end of a burst: a plateau that certainly falls by more than `DRIFT_RATIO` within its
runs, or to less than two thirds from the first round to the last. A rise is the same in the other direction, from the first round to the last.

Source: Maurer, Hothorn & Lehmacher 1995, for tests in a fixed order; Berger 1982, doi:10.1080/00401706.1982.10487790,
for a claim that needs each of several tests.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pgdyno.analyse.estimate import Estimate, Noise, estimate_geometric_mean, pool_noise
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import Direction, DiskCard, JobRun, Latencies

PLATEAU_GAIN = 0.10
DRIFT_RATIO = 0.10
# Whole rounds of a steady disk may differ, for example with the load of neighbours, and three of them do not tell this from a fall.
# So a standard deviation of 10 % between rounds is allowed for, at the normal law's 95 %.
_ROUNDS_RATIO = math.exp(1.96 * math.sqrt(2) * 0.10)
# Share of a run's parts at either end; with fewer than six parts there are no ends to compare.
_END_RATIO = 1 / 3
_MIN_PARTS = 6
# With fewer ratios, or degrees of freedom of their noise, the interval is nearly unbounded.
_MIN_RATIOS, _MIN_DEGREES = 3, 2
_PER_S, _BYTES_PER_S, _US = "1/s", "bytes/s", "us"


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of I/Os, over rounds."""

    mean_us: Estimate
    p50_us: Estimate
    p95_us: Estimate
    p99_us: Estimate
    p999_us: Estimate


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a job over its rounds."""

    job: DiskJob
    iops: Estimate
    """Reads and writes together."""
    bytes_per_s: Estimate
    read: LatencyFigures | None
    write: LatencyFigures | None
    flush: LatencyFigures | None
    iops_by_round: dict[int, float]


class PlateauKind(enum.Enum):
    """How certain it is that more depth gains nothing."""

    REACHED = "reached"
    LIKELY = "seems reached"
    """By the means; the intervals leave it open."""
    NOT_REACHED = "not reached"
    """The deepest is still the best by more than `PLATEAU_GAIN`."""
    ONE_DEPTH = "one depth only"


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate of an access pattern, however many I/Os are under way."""

    pattern: Pattern
    block_bytes: int
    kind: PlateauKind
    depth: int
    """Depth at which the plateau begins."""
    depths: tuple[int, ...]
    """All depths that were tried."""
    read_ratio: float | None
    iops: Estimate
    bytes_per_s: Estimate
    iops_by_round: dict[int, float]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A plateau that is not steady: it falls, as at the end of a burst, or rises, as when other load ends."""

    what: str
    """`reads` or `writes`."""
    is_within_runs: bool
    """From the first to the last third of each run; otherwise from the first round to the last."""
    ratio: Estimate
    """Ratio of the later to the earlier rate."""


class DiskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures estimated from a card's runs."""

    jobs: tuple[JobFigures, ...]
    """Jobs in the order of patterns, then of sizes and depths."""
    plateaus: tuple[Plateau, ...]
    """Plateaus of every direct pattern, also of one that was run at one depth only."""
    fades: tuple[Drift, ...]
    noise_ratio: float | None
    """Standard deviation of a run's logarithm around its job's mean; None without repeated runs."""
    round_count: int
    rises: tuple[Drift, ...] = ()

    def find(self, pattern: Pattern, *, depth: int = 1) -> JobFigures | None:
        """Return the job of a pattern and depth; of several sizes, the smallest."""
        found = (one for one in self.jobs if one.job.pattern is pattern and one.job.depth == depth)
        return min(found, key=lambda one: one.job.block_bytes, default=None)

    def find_plateau(self, pattern: Pattern) -> Plateau | None:
        """Return the plateau of a pattern; of several sizes, the one that moves most bytes."""
        found = (one for one in self.plateaus if one.pattern is pattern)
        return max(found, key=lambda one: one.bytes_per_s.value or 0.0, default=None)


class _Key(NamedTuple):
    place: int
    block_bytes: int
    depth: int
    read_ratio: float


def estimate_card(card: DiskCard) -> DiskFigures:
    """Estimate each job over its rounds, and the plateaus, drifts and noise."""
    by_job: dict[_Key, list[JobRun]] = {}
    for run in card.runs:
        by_job.setdefault(_key(run.job), []).append(run)
    jobs = tuple(_estimate_job(by_job[key]) for key in sorted(by_job))
    plateaus = tuple(_find_plateaus(jobs))
    drifts = tuple(_find_drifts(card.runs, plateaus))
    return DiskFigures(
        jobs=jobs,
        plateaus=plateaus,
        fades=tuple(one for one in drifts if (one.ratio.value or 1.0) < 1.0),
        rises=tuple(one for one in drifts if (one.ratio.value or 1.0) > 1.0),
        noise_ratio=_pool_noise(jobs),
        round_count=len({run.round for run in card.runs}),
    )


def iops_of(run: JobRun) -> float:
    """Return the IOPS of a run, reads and writes together."""
    return sum(one.iops for one in (run.read, run.write) if one is not None)


def bytes_per_s_of(run: JobRun) -> float:
    """Return the bytes per second of a run, reads and writes together."""
    return sum(one.bytes_per_s for one in (run.read, run.write) if one is not None)


def estimate_positive(values: Iterable[float], unit: str) -> Estimate:
    """Estimate the geometric mean of the positive values: a run without any I/O does not show how fast a disk is."""
    return estimate_geometric_mean([value for value in values if value > 0], unit=unit)


def _key(job: DiskJob) -> _Key:
    return _Key(list(Pattern).index(job.pattern), job.block_bytes, job.depth, job.read_ratio or 0.0)


def _estimate_job(runs: Sequence[JobRun]) -> JobFigures:
    return JobFigures(
        job=runs[0].job,
        iops=estimate_positive(map(iops_of, runs), _PER_S),
        bytes_per_s=estimate_positive(map(bytes_per_s_of, runs), _BYTES_PER_S),
        read=_estimate_latency(_latency_of(run.read) for run in runs),
        write=_estimate_latency(_latency_of(run.write) for run in runs),
        flush=_estimate_latency(run.flush for run in runs),
        iops_by_round={run.round: iops_of(run) for run in runs if iops_of(run) > 0},
    )


def _latency_of(direction: Direction | None) -> Latencies | None:
    return None if direction is None else direction.latency


def _estimate_latency(latencies: Iterable[Latencies | None]) -> LatencyFigures | None:
    seen = [one for one in latencies if one is not None]
    if not seen:
        return None
    return LatencyFigures(
        **{
            name: estimate_positive((getattr(one, name) for one in seen), _US)
            for name in LatencyFigures.__struct_fields__
        }
    )


def _find_plateaus(jobs: Sequence[JobFigures]) -> Iterator[Plateau]:
    swept: dict[tuple[Pattern, int], list[JobFigures]] = {}
    for one in jobs:
        if not one.job.is_flushed and one.iops_by_round:
            swept.setdefault((one.job.pattern, one.job.block_bytes), []).append(one)
    for (pattern, block_bytes), depths in swept.items():
        kind, start = _find_plateau_start(depths)
        level = _mean_by_round([one for one in depths[start:] if not _is_too_deep(depths[start], one)])
        iops = estimate_positive(level.values(), _PER_S)
        yield Plateau(
            pattern=pattern,
            block_bytes=block_bytes,
            kind=kind,
            depth=depths[start].job.depth,
            depths=tuple(one.job.depth for one in depths),
            read_ratio=depths[0].job.read_ratio,
            iops=iops,
            bytes_per_s=estimate_positive((each * block_bytes for each in level.values()), _BYTES_PER_S),
            iops_by_round=level,
        )


def _find_plateau_start(depths: Sequence[JobFigures]) -> tuple[PlateauKind, int]:
    """Find how certain a plateau is, and the index of the depth at which it begins; depths are in increasing order."""
    last = len(depths) - 1
    if not last:
        return PlateauKind.ONE_DEPTH, 0

    def begin(end: Callable[[Estimate], float | None]) -> int:
        for place in range(last - 1, -1, -1):
            gains = (end(_ratio(depths[place].iops_by_round, deeper.iops_by_round)) for deeper in depths[place + 1 :])
            if not all(gain is not None and gain < 1 + PLATEAU_GAIN for gain in gains):
                return place + 1
        return 0

    for kind, start in (
        (PlateauKind.REACHED, begin(lambda gain: gain.high)),
        (PlateauKind.LIKELY, begin(lambda gain: gain.value)),
    ):
        if start < last:
            return kind, start
    return PlateauKind.NOT_REACHED, last


def _is_too_deep(plateau: JobFigures, deeper: JobFigures) -> bool:
    """Return whether a depth is too deep: its rate is certainly below the plateau's."""
    high = _ratio(plateau.iops_by_round, deeper.iops_by_round).high
    return high is not None and high < 1 - PLATEAU_GAIN


def _ratio(before: dict[int, float], after: dict[int, float]) -> Estimate:
    """Estimate the ratio of rates in the same rounds, which saw the same neighbours."""
    return estimate_positive((after[number] / before[number] for number in before.keys() & after.keys()), "ratio")


def _mean_by_round(depths: Sequence[JobFigures]) -> dict[int, float]:
    """Average the plateau's rate in each round that has all of its depths; if none has, take its deepest one."""
    rounds = set.intersection(*(set(one.iops_by_round) for one in depths))
    if not rounds:
        return depths[-1].iops_by_round
    return {
        number: math.exp(math.fsum(math.log(one.iops_by_round[number]) for one in depths) / len(depths))
        for number in sorted(rounds)
    }


_READS = frozenset({Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ})
_WRITES = frozenset({Pattern.RANDOM_WRITE, Pattern.SEQUENTIAL_WRITE})


def _find_drifts(runs: Sequence[JobRun], plateaus: Sequence[Plateau]) -> Iterator[Drift]:
    """Find drifts of the disk's limit; depths below the plateau do not reach the limit and are left out."""
    begin_at = {(one.pattern, one.block_bytes): one.depth for one in plateaus}
    at_limit = [
        run
        for run in runs
        if (run.job.pattern, run.job.block_bytes) in begin_at
        and run.job.depth >= begin_at[run.job.pattern, run.job.block_bytes]
    ]
    for what, patterns in (("reads", _READS), ("writes", _WRITES)):
        chosen = [run for run in at_limit if run.job.pattern in patterns]
        for is_within_runs, ratio in ((True, _within_runs(chosen)), (False, _over_rounds(chosen))):
            if ratio is None or ratio.low is None or ratio.high is None:
                continue
            least = (1 - DRIFT_RATIO) / (1.0 if is_within_runs else _ROUNDS_RATIO)
            # Within a run, fio's own start would look like a rise.
            if ratio.high < least or (ratio.low > 1 / least and not is_within_runs):
                yield Drift(what=what, is_within_runs=is_within_runs, ratio=ratio)


def _within_runs(runs: Sequence[JobRun]) -> Estimate | None:
    ratios = []
    for run in runs:
        rates = [span.iops for span in run.spans]
        count = int(len(rates) * _END_RATIO)
        before = math.fsum(rates[:count])
        if len(rates) >= _MIN_PARTS and before > 0:
            ratios.append(math.fsum(rates[-count:]) / before)
    return estimate_positive(ratios, "ratio") if len(ratios) >= _MIN_RATIOS else None


def _over_rounds(runs: Sequence[JobRun]) -> Estimate | None:
    """Estimate the ratio of the last round to the first over jobs, with the noise of all rounds; None with too few of them.

    The noise is what is left of each run's logarithm without the mean of its job and of its round: a quick card has two
    jobs at the limit in each direction, whose two ratios alone would say nothing.
    Source: Scheffe 1959, The Analysis of Variance, 4.2: the two-way layout with one observation in each cell.
    """
    by_job: dict[_Key, dict[int, float]] = {}
    for run in runs:
        if (iops := iops_of(run)) > 0:
            by_job.setdefault(_key(run.job), {})[run.round] = math.log(iops)
    rounds = sorted({run.round for run in runs})
    logs = [[of_job[number] for number in rounds] for of_job in by_job.values() if len(of_job) == len(rounds)]
    degrees = (len(logs) - 1) * (len(rounds) - 1)
    if degrees < _MIN_DEGREES:
        return None
    around_jobs = [[one - math.fsum(each) / len(each) for one in each] for each in logs]
    spread = pool_noise(list(zip(*around_jobs, strict=True)))
    # Means of jobs that were taken off hide a part of the spread; a ratio has the noise of two runs.
    times = math.sqrt(2 * len(rounds) / (len(rounds) - 1))
    noise = None if spread is None else Noise(spread.sd * times, degrees)
    return estimate_geometric_mean([math.exp(each[-1] - each[0]) for each in logs], unit="ratio", noise=noise)


def _pool_noise(jobs: Sequence[JobFigures]) -> float | None:
    """Pool the noise over jobs, each around its own mean; a round without I/O has no logarithm."""
    logs = [[math.log(iops) for iops in one.iops_by_round.values() if iops > 0] for one in jobs]
    noise = pool_noise([each for each in logs if each])
    return None if noise is None else noise.sd
