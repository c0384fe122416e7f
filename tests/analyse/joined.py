"""Trials made by hand that know of CPUs, a disk and a log: what predictions and the join with a disk's card look at."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import polars as pl

from pgdyno.plan.plan import PlannedTrial, PlannedWorkload
from pgdyno.record.pgbench.output import PgbenchSummary
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.samples.rows import OsHeader
from pgdyno.record.serverlog import AnyLogEvent
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import Dataset, RelationFact, SettingFact, TrialRecord, TrialStatus
from pgdyno.spec.table import QueryMode

START_S, SECONDS, COUNT = 1000.0, 10.0, 10_000
DEVICE = "vda"
UNLOGGED = SettingFact(name="log_checkpoints", value="off", unit=None, boot_value="on", source="configuration file")
_DATA = Path(__file__).parent.parent / "data" / "samples"
_TICKS = 100


def make_workload(script: str, *, clients: int = 4, rate_tps: float | None = None) -> PlannedWorkload:
    return PlannedWorkload(
        name=script,
        scripts=((script, 1),),
        mode=QueryMode.PREPARED,
        clients=clients,
        threads=2,
        rate_tps=rate_tps,
        latency_limit_ms=None,
        max_tries=1,
    )


def make_dataset(scale: int, *, partitions: int = 0) -> Dataset:
    """As PostgreSQL 18 loads it."""
    heap, key = -(-scale * 100_000 // 61), round(scale * 274.3)
    sizes = {"pgbench_accounts": 0 if partitions else heap, "pgbench_accounts_pkey": 0 if partitions else key}
    relations = {**sizes, "pgbench_branches": 1, "pgbench_tellers": 2, "pgbench_history": 0}
    return Dataset(
        scale=scale,
        relations=tuple(
            RelationFact(
                name=name, kind="index" if "key" in name else "table", bytes=pages * 8192, pages=pages, rows=None
            )
            for name, pages in relations.items()
        ),
        total_bytes=sum(relations.values()) * 8192,
        init_argv=(),
        init_steps_s={},
        init_total_s=1.0,
        is_reused=False,
    )


def make_data(
    *,
    cpu_share: float = 0.25,
    others_share: float = 0.0,
    seconds: float = SECONDS,
    wal_bytes: float = 0.0,
    disk: dict[str, float] | None = None,
    counters: dict[str, float] | None = None,
    log: tuple[AnyLogEvent, ...] = (),
) -> TrialData:
    """A finished trial of COUNT transactions on 2 CPUs.

    Args:
        cpu_share: Of both CPUs, that the study used.
        others_share: That others used.
        seconds: Of its load.
        wal_bytes: Written in it.
        disk: What each of the device's counters grew by in a second.
        counters: Of the server, over the load.
        log: Of the server.
    """
    planned = PlannedTrial(
        number=1, round=1, workload="tpcb-like", seed=1, warm_up_s=0.0, duration_s=seconds, variants=()
    )
    grown = {"wal_bytes": wal_bytes, **(counters or {})}
    record = TrialRecord(
        planned=planned,
        status=TrialStatus.FINISHED,
        error=None,
        argv=(),
        clock_offset_s=0.0,
        restore_s=0.0,
        load_start_monotonic_s=START_S,
        load_end_monotonic_s=START_S + seconds,
        load_cpu_s=None,
        log_sampling_rate=1.0,
        settings=(),
        counters_before=dict.fromkeys(grown, 0.0),
        counters_after=dict(grown),
        gaps=(),
    )
    return TrialData(
        record=record,
        pgbench=PgbenchSummary(transaction_count=COUNT),
        warm_up=None,
        transactions=None,
        os=_make_samples(cpu_share, others_share, seconds, disk or {}),
        server=None,
        log=log,
        gaps=(),
    )


def _make_samples(cpu_share: float, others_share: float, seconds: float, disk: dict[str, float]) -> OsSamples:
    """Every half second from before the load to after it; 2 CPUs alike."""
    header = msgspec.convert(
        {**json.loads((_DATA / "pg18" / "os.jsonl").read_text().splitlines()[0]), "clk_tck": _TICKS}, OsHeader
    )
    times = [START_S - 0.5 + 0.5 * step for step in range(int(2 * seconds) + 3)]
    columns: dict[str, list[float]] = {"t_s": times, "cost_s": [0.0] * len(times)}
    ticks = [_TICKS * (t - times[0]) for t in times]
    columns |= {f"tree.study/{field}": [cpu_share * one for one in ticks] for field in ("utime", "stime")}
    for cpu in ("cpu0", "cpu1"):
        columns |= {f"{cpu}/{field}": [0.0] * len(times) for field in header.fields["cpu"]}
        columns[f"{cpu}/user"] = [(cpu_share + others_share) * one for one in ticks]
        columns[f"{cpu}/idle"] = [(1.0 - cpu_share - others_share) * one for one in ticks]
    grown = {**dict.fromkeys(header.fields["disk"], 0.0), **disk}
    columns |= {f"disk.{DEVICE}/{field}": [rate * (t - times[0]) for t in times] for field, rate in grown.items()}
    return OsSamples(header=header, frame=pl.DataFrame(columns), end="asked to", torn="")
