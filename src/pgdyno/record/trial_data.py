"""Read all files of a trial from its folder: the raw material of every analysis.

A missing or damaged file becomes a gap with its reason; the other files are still read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pgdyno.errors import PgdynoError
from pgdyno.record.failover import AFTER_DIR, FAILOVER_FILE, FailoverRecord, Probes, read_failover, read_probes
from pgdyno.record.generators.logs import (
    LoadLog,
    ScheduleEnd,
    find_log,
    list_logs,
    read_own_transactions,
    read_schedule_ends,
    read_transactions,
)
from pgdyno.record.generators.merge import merge_load
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import (
    LOADS_DIR,
    SAME_CLOCK,
    find_clock_offset_s,
    find_part_folders,
    read_part,
    read_part_clock,
)
from pgdyno.record.generators.slices import MergedSlice, MergedSliceReader
from pgdyno.record.generators.turns import find_turn_folders, merge_turns
from pgdyno.record.pgbench.init import InitSteps, parse_init
from pgdyno.record.pgbench.output import PgbenchSummary, parse_summary
from pgdyno.record.predictions import PREDICTIONS_FILE, Prediction, read_predictions
from pgdyno.record.samples.clock import ClockFit
from pgdyno.record.samples.files import (
    GENERATOR_FILE,
    OsSamples,
    ServerSamples,
    read_os_samples,
    read_server_samples,
)
from pgdyno.record.samples.pings import PING, PINGS_FILE, Pings, read_pings
from pgdyno.record.samples.pooler import POOLER, POOLER_FILE, PoolerSamples, read_pooler
from pgdyno.record.samples.series import Floats, Sampled
from pgdyno.record.samples.server_machine import (
    SERVER_LOG,
    convert_samples,
    find_wall_offset_s,
    read_server_clock,
    read_server_machine,
)
from pgdyno.record.serverlog import AnyLogEvent, read_serverlog
from pgdyno.record.transactions.pack import SUMMARY_FILE, TRANSACTIONS_DIR, find_parts, read_span
from pgdyno.record.transactions.slices import (
    SLICES_FILE,
    Slice,
    SliceLoad,
    read_slice_loads,
    read_slices,
    read_turn_loads,
)
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.times import LONG_RATIO, LongLoad, read_long_load
from pgdyno.record.tries import count_failures
from pgdyno.record.types import RESET_COUNTERS, Gap, TrialRecord, TrialStatus

STDOUT_FILE = "pgbench.stdout"
STDERR_FILE = "pgbench.stderr"
WARM_UP_DIR = "warm-up"
GENERATOR = "load generator's machine"
"""Source name of gaps in the samples of the machine that the load came from, where it is not the server's."""
TRANSACTION_LOG = "transaction log"
"""Source name of gaps in the transactions."""
FILES = {
    "pgbench": STDOUT_FILE,
    "warm-up": f"{WARM_UP_DIR}/{STDOUT_FILE}",
    "slices": f"{SLICES_FILE} with its transactions",
    TRANSACTION_LOG: f"{TRANSACTIONS_DIR}/{SUMMARY_FILE}",
    "transactions": f"{TRANSACTIONS_DIR}/",
    "os sampler": "os.parquet",
    "server sampler": "server.parquet",
    GENERATOR: "generator.parquet",
    "server log": SERVER_LOG,
    PING: PINGS_FILE,
    "failover": FAILOVER_FILE,
    POOLER: POOLER_FILE,
}
"""The file of a trial that each source of a gap should have written."""

_T = TypeVar("_T")


class FailoverData(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial left of its failover."""

    steps: FailoverRecord
    probes: Probes
    after: PgbenchSummary
    """Summary of the load on the standby that took over."""
    after_transactions: TransactionSummary
    log: tuple[AnyLogEvent, ...]
    """The log of that standby."""


class GeneratorData(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several pgbenches left of a trial; None where it is missing."""

    part: LoadPart
    pgbench: PgbenchSummary | None
    transactions: TransactionSummary | None
    """Stamped with the time of day of its machine."""
    clock: ClockFit | None
    os: OsSamples | None
    """Samples of its machine, with times of the clock of the machine that pgdyno ran on; of several pgbenches on a load host, the
    first has them."""
    long_load: LongLoad | None = None
    """When each transaction ran, where they take long, on the trial's clock; None for others."""


class TrialData(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's record and all its data; None where data are missing, with the reason in `gaps`."""

    record: TrialRecord
    pgbench: PgbenchSummary | None
    warm_up: PgbenchSummary | None
    """Summary of the warm-up load, in which statements were timed; None without a warm-up."""
    transactions: TransactionSummary | None
    os: OsSamples | None
    server: ServerSamples | None
    log: tuple[AnyLogEvent, ...]
    gaps: tuple[Gap, ...]
    init: InitSteps | None = None
    """The steps of a trial that loaded the data; None for other trials."""
    slices: tuple[Slice, ...] = ()
    """Slices of a switchback block, or of a trial of a live round, in order."""
    slice_loads: tuple[SliceLoad, ...] = ()
    """Transactions of each slice."""
    part_loads: dict[str, tuple[SliceLoad, ...]] = {}
    """Transactions of each slice by part of the load; none of a load without parts."""
    schedule_ends: tuple[ScheduleEnd, ...] = ()
    """Where each schedule ended, of a trial at a rate that a search chose; none if not all logs are whole."""
    predictions: tuple[Prediction, ...] = ()
    """Predictions made before the trial ran."""
    pings: Pings | None = None
    """Round trips of empty statements beside the load; None for servers of pgdyno's own, and in older records."""
    pooler: PoolerSamples | None = None
    """What the pooler's console said; None without a pooler."""
    generator: OsSamples | None = None
    """Samples of the machine that the load came from, of a server of the user's; of several, the busiest pgbench's. None in
    older records."""
    generators: tuple[GeneratorData, ...] = ()
    """What each of several pgbenches left, or one on a load host; none of one pgbench on the machine that pgdyno ran on."""
    long_load: LongLoad | None = None
    """When each transaction ran, where they take long; None for others."""
    failover: FailoverData | None = None
    """The failover of a trial that had one; `pgbench` and `transactions` are then those of the load before it."""
    failures: int = 0
    """How often the trial failed before it was run again."""
    server_clock: ClockFit | None = None
    """How the clock of the server's machine differs, from which `os` was converted; None if that is the load's machine."""

    @property
    def far_generators(self) -> tuple[GeneratorData, ...]:
        """Those of `generators` that ran on load hosts; the others are parts of a load from the machine that pgdyno ran on."""
        return _list_far(self.generators)

    @property
    def of_load(self) -> OsSamples | None:
        """Samples of the machine that pgbench ran on, whether or not the server did."""
        return self.os if self.generator is None else self.generator

    @property
    def is_sliced(self) -> bool:
        """True if the load of one variant ran in slices, frozen between them: a trial of a live round."""
        return bool(self.slices) and not self.record.planned.is_block

    @property
    def load_start_epoch_s(self) -> float | None:
        """Start of the measured load in seconds since the epoch; None if it never began."""
        start_s = self.record.load_start_monotonic_s
        return None if start_s is None else start_s + self.record.clock_offset_s

    @property
    def whole_seconds(self) -> range:
        """Seconds since the epoch throughout which the load ran: only these say how many transactions it did in a second.

        The first one begins after the first transaction has ended, and the last one ends before the load's time is over.
        pgbench lets the transactions that run then end, and logs them, but the seconds after that time do not count. Seconds
        before it do, also those in which no transaction of a part of the load ended.
        """
        start_s, seen = self.load_start_epoch_s, self.transactions
        if start_s is None or seen is None or seen.first_stamp_us is None or seen.last_stamp_us is None:
            return range(0)
        planned_s, shifts_s = self.record.planned.duration_s, self._find_shifts_s()
        first = math.ceil(max(start_s, seen.first_stamp_us / 1e6) - min(shifts_s))
        # Of a load that was ended before its time, pgbench's own end may be noticed late: its last transaction tells more.
        until_s = min(start_s + min(planned_s, self.record.load_s or planned_s), seen.last_stamp_us / 1e6)
        return range(first, max(first, math.floor(until_s - max(shifts_s))))

    def find_behind_s(self, generator: GeneratorData) -> float:
        """Return by how much the stamps of one of several pgbenches are behind those of the trial's clock, in seconds."""
        return self.record.clock_offset_s - find_clock_offset_s(generator.part, generator.clock or SAME_CLOCK)

    def _find_shifts_s(self) -> list[float]:
        """Return by how much the seconds of each pgbench's log begin after those of the trial's clock that they merge into."""
        behind_s = map(self.find_behind_s, self.generators)
        return [behind - round(behind) for behind in behind_s] or [0.0]

    @property
    def transaction_count(self) -> int | None:
        """Transactions of the measured load as pgbench counted them; None if it did not print their number."""
        return None if self.pgbench is None else self.pgbench.transaction_count

    @property
    def log_within_load(self) -> tuple[AnyLogEvent, ...]:
        """Events of the server's log during the measured load."""
        start_s, end_s = self.record.load_start_monotonic_s, self.record.load_end_monotonic_s
        if start_s is None or end_s is None:
            return ()
        return tuple(
            event for event in self.log if event.origin is not None and start_s <= event.origin.monotonic_s <= end_s
        )

    def within_load(self, line: Sampled) -> Floats:
        """Return the observed values of a series during the measured load."""
        return line.values[self._find_seen(line)]

    def mean_within_load(self, line: Sampled) -> float | None:
        """Return the mean of a series over the measured load; None if nothing was observed."""
        seen = self._find_seen(line)
        weights = line.steps_s if line.weights is None else line.weights
        counted = None if weights is None else weights[seen]
        return float(np.average(line.values[seen], weights=counted)) if seen.any() else None

    def _find_seen(self, line: Sampled) -> npt.NDArray[np.bool_]:
        start_s, end_s = self.record.load_start_monotonic_s, self.record.load_end_monotonic_s
        if start_s is None or end_s is None:
            return np.zeros(len(line.values), dtype=bool)
        return line.find_within(start_s, end_s) & np.isfinite(line.values)


def read_trial_data(folder: Path, record: TrialRecord) -> TrialData:
    """Read all files of a trial.

    Args:
        folder: The trial's folder in the record.
        record: Its `trial.json`.
    """
    if any(map(record.was_reset, record.counters_after)):
        record = msgspec.structs.replace(record, gaps=(*record.gaps, RESET_COUNTERS))
    attempt = _Attempts(record.gaps)

    slices = attempt("slices", lambda: read_slices(folder)) or ()
    loads = (attempt("slices", lambda: _read_loads(folder, slices, record)) if slices else None) or []
    is_loading = record.is_loading
    summary = None if is_loading else attempt("pgbench", lambda: _read_measured(folder, record))
    folders = [place / TRANSACTIONS_DIR for place in find_part_folders(folder) or (folder,)]
    attempt("transactions", lambda: [read_span(part) for place in folders for part in find_parts(place)])
    machine = attempt("os sampler", lambda: read_server_machine(folder))
    server = attempt("server sampler", lambda: read_server_samples(folder))
    log_offset_s = _find_log_offset_s(record, server, machine)
    transactions = (
        None if is_loading else attempt(TRANSACTION_LOG, lambda: read_transactions(_list_logs(folder, record)))
    )
    generators = tuple(_read_generator(folder, part, record, attempt) for part in record.generators)
    return TrialData(
        record=record,
        failures=count_failures(folder),
        pgbench=summary,
        init=attempt("pgbench", lambda: _read_steps(folder)) if is_loading else None,
        warm_up=attempt("warm-up", lambda: _read_summary(folder / WARM_UP_DIR)) if record.planned.warm_up_s else None,
        transactions=transactions,
        long_load=attempt(
            "transactions", lambda: _read_long_load(lambda: _list_logs(folder, record), record, transactions)
        ),
        os=machine,
        server_clock=attempt("os sampler", lambda: read_server_clock(folder)),
        server=server,
        log=attempt("server log", lambda: read_serverlog(folder / SERVER_LOG, clock_offset_s=log_offset_s)) or (),
        generator=_choose_generator(generators)
        if _list_far(generators)
        else attempt(GENERATOR, lambda: read_os_samples(folder, name=GENERATOR_FILE))
        if any(folder.glob("generator.*"))
        else None,
        failover=attempt("failover", lambda: _read_failover(folder, record))
        if (folder / FAILOVER_FILE).exists()
        else None,
        generators=generators,
        pings=attempt(PING, lambda: read_pings(folder)) if (folder / PINGS_FILE).exists() else None,
        pooler=attempt(POOLER, lambda: read_pooler(folder)) if (folder / POOLER_FILE).exists() else None,
        predictions=attempt(PREDICTIONS_FILE, lambda: read_predictions(folder)) or (),
        gaps=tuple(attempt.gaps),
        # A slice is useless without its transactions.
        slices=slices if loads else (),
        slice_loads=tuple(one.whole for one in loads),
        part_loads={name: tuple(one.parts[name] for one in loads) for name in (loads[0].parts if loads else ())},
        schedule_ends=()
        if summary is None or record.planned.rate_tps is None
        else attempt(TRANSACTION_LOG, lambda: _read_schedule_ends(folder, record, summary)) or (),
    )


def _read_schedule_ends(folder: Path, record: TrialRecord, summary: PgbenchSummary) -> tuple[ScheduleEnd, ...]:
    if summary.latency_limit_ms is None:
        return ()
    return read_schedule_ends(
        _list_logs(folder, record),
        latency_limit_ms=summary.latency_limit_ms,
        clients=summary.client_count or 1,
        threads=summary.thread_count or 1,
    )


def _find_log_offset_s(record: TrialRecord, server: ServerSamples | None, machine: OsSamples | None) -> float:
    """Return what converts the clock of the machine that pgdyno ran on to the time of day in the server's log.

    Args:
        record: The trial's record. With load hosts its offset is to the time of day of one of them.
        server: Samples of the server.
        machine: Samples of its machine.
    """
    found = None if all(part.is_here for part in record.generators) else find_wall_offset_s(server, machine)
    return record.clock_offset_s if found is None else found


def _read_failover(folder: Path, record: TrialRecord) -> FailoverData:
    steps = read_failover(folder)
    return FailoverData(
        steps=steps,
        probes=read_probes(folder),
        after=_read_summary(folder / AFTER_DIR),
        after_transactions=read_transactions(list_logs(folder / AFTER_DIR, clock_offset_s=steps.clock_offset_s)),
        log=read_serverlog(folder / f"{steps.standby}.log", clock_offset_s=record.clock_offset_s),
    )


class _Attempts:
    """Reads files, and notes those that cannot be read as gaps."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self.gaps = list(gaps)

    def __call__(self, source: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except (PgdynoError, OSError, ValueError) as exc:
            if not any(gap.source == source for gap in self.gaps):
                reason = exc.reason if isinstance(exc, PgdynoError) else str(exc)
                self.gaps.append(Gap(source=source, reason=reason))
            return None


def _read_loads(folder: Path, slices: tuple[Slice, ...], record: TrialRecord) -> list[MergedSlice]:
    if record.generators and find_part_folders(folder):
        reader = MergedSliceReader(folder, clock_offset_s=record.clock_offset_s)
        return list(reader.take(slices, is_ended=True))
    read = read_turn_loads if find_turn_folders(folder) else read_slice_loads
    loads = read(folder / TRANSACTIONS_DIR, slices, clock_offset_s=record.clock_offset_s)
    return [MergedSlice(whole=load) for load in loads]


def _read_generator(folder: Path, part: LoadPart, record: TrialRecord, attempt: _Attempts) -> GeneratorData:
    """Read what one of several pgbenches left; of the first on a load host also the samples of its machine, on this machine's clock."""
    place, source = folder / LOADS_DIR / part.folder_name, f"{GENERATOR}: {part.host}"
    is_first = next(one for one in record.generators if one.host == part.host) is part

    def list_own() -> list[LoadLog]:
        return [find_log(place, part, clock_offset_s=record.clock_offset_s)]

    transactions = attempt(TRANSACTION_LOG, lambda: read_own_transactions(place / TRANSACTIONS_DIR))
    return GeneratorData(
        part=part,
        pgbench=attempt("pgbench", lambda: _read_printed(place)),
        transactions=transactions,
        long_load=attempt("transactions", lambda: _read_long_load(list_own, record, transactions)),
        clock=None if part.is_here else attempt(source, lambda: read_part_clock(place, part)),
        os=None if part.is_here or not is_first else attempt(source, lambda: _read_load_machine(folder, part)),
    )


def _read_load_machine(folder: Path, part: LoadPart) -> OsSamples:
    samples = read_os_samples(folder / LOADS_DIR / part.host, name=GENERATOR_FILE)
    return convert_samples(samples, read_part_clock(folder / LOADS_DIR / part.folder_name, part))


def _list_logs(folder: Path, record: TrialRecord) -> tuple[LoadLog, ...]:
    return list_logs(folder, clock_offset_s=record.clock_offset_s)


def _read_long_load(
    list_own: Callable[[], Sequence[LoadLog]], record: TrialRecord, transactions: TransactionSummary | None
) -> LongLoad | None:
    """Read when each transaction ran, where they take long; None for others, and where the load did not run in one piece.

    At a scheduled rate latencies count from the schedule, and not from when a client began.

    Args:
        list_own: Lists the logs of these transactions.
        record: The trial's record.
        transactions: Their summary.
    """
    start_s, planned_s = record.load_start_monotonic_s, record.planned.duration_s
    if transactions is None or start_s is None or record.slice_s is not None or transactions.columns.has_lag:
        return None
    if (transactions.latency().mean_us or 0.0) < 1e6 * LONG_RATIO * planned_s:
        return None
    start_epoch_s = start_s + record.clock_offset_s
    return read_long_load(
        [(log.folder, log.behind_s) for log in list_own()],
        from_epoch_s=start_epoch_s,
        until_epoch_s=start_epoch_s + planned_s,
    )


def _list_far(generators: Iterable[GeneratorData]) -> tuple[GeneratorData, ...]:
    return tuple(one for one in generators if not one.part.is_here)


def _choose_generator(generators: Sequence[GeneratorData]) -> OsSamples | None:
    """Return the samples of the load host on which pgbench used the most CPU time."""
    spent_s: dict[str, float] = {}
    for one in generators:
        spent_s[one.part.host] = spent_s.get(one.part.host, 0.0) + (one.part.cpu_s or 0.0)
    seen = [one for one in generators if one.os is not None]
    return max(seen, key=lambda one: spent_s[one.part.host]).os if seen else None


def _read_measured(folder: Path, record: TrialRecord) -> PgbenchSummary:
    summary = _read_summary(folder)
    # If no transaction succeeded, pgbench prints nothing further.
    if record.status is TrialStatus.FINISHED and not summary.is_complete and summary.transaction_count != 0:
        raise ValueError(f"{folder / STDOUT_FILE} ends before pgbench's summary does")
    return summary


def _read_summary(folder: Path) -> PgbenchSummary:
    if turns := find_turn_folders(folder):
        return merge_turns([_read_printed(turn) for turn in turns])
    places = find_part_folders(folder)
    if not places:
        return _read_printed(folder)
    return merge_load([(read_part(place), _read_printed(place)) for place in places])


def _read_printed(folder: Path) -> PgbenchSummary:
    return parse_summary((folder / STDOUT_FILE).read_text(errors="replace"))


def _read_steps(folder: Path) -> InitSteps:
    steps = parse_init((folder / STDERR_FILE).read_text(errors="replace"))
    if steps is None:
        raise ValueError(f"{folder / STDERR_FILE} ends before the times of pgbench's steps")
    return steps
