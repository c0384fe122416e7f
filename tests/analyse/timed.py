"""Trials made by hand of which it is known what clients' backends did in each second, and what the kernel counted of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import polars as pl

from pgdyno.record.samples.files import OsSamples, ServerSamples
from pgdyno.record.samples.rows import ServerHeader
from pgdyno.record.trial_data import TrialData
from tests.analyse.joined import COUNT, START_S, make_data

LOOKS = 10
_DATA = Path(__file__).parent.parent / "data" / "samples"
Waits = Mapping[tuple[str, str, str], float | Sequence[float]]
"""Mean numbers of client backends, at all times or by second, by state, type of wait and wait."""

RUNNING = ("active", "", "")
IDLE = ("idle", "Client", "ClientRead")
FLUSH = ("active", "IO", "WalSync")
FOLLOW = ("active", "LWLock", "WALWrite")
ROW = ("active", "Lock", "transactionid")
READ = ("active", "IO", "DataFileRead")


def make_timed(
    waits: Waits,
    *,
    seconds: int = 10,
    major: int = 18,
    backends: tuple[float, float] | None = None,
    threads: Sequence[tuple[float, float]] | None = None,
    cpu_share: float = 0.25,
    others_share: float = 0.0,
) -> TrialData:
    """A finished trial of so many seconds.

    Args:
        waits: What was seen in each look.
        seconds: Of its load.
        major: Of PostgreSQL.
        backends: How many had a CPU, and waited for one; None: not counted, as in old records.
        threads: Of pgbench, shares of having a CPU and of waiting for one; None: likewise.
        cpu_share: Of both CPUs, that the study used, as user and again as system time.
        others_share: That others used.
    """
    data = make_data(seconds=float(seconds), cpu_share=cpu_share, others_share=others_share)
    assert data.os is not None
    assert data.pgbench is not None
    return msgspec.structs.replace(
        data,
        pgbench=msgspec.structs.replace(data.pgbench, tps=COUNT / seconds),
        os=_count_cpu(data.os, backends, threads),
        server=_look(waits, seconds, major),
    )


def _count_cpu(
    samples: OsSamples, backends: tuple[float, float] | None, threads: Sequence[tuple[float, float]] | None
) -> OsSamples:
    since_ns = (samples.frame["t_s"] - samples.frame["t_s"][0]) * 1e9
    rates = {f"backends.server/{name}": rate for name, rate in zip(("run_ns", "wait_ns"), backends or (), strict=False)}
    for number, (had, waited) in enumerate(threads or ()):
        rates |= {f"thread.load.{number}/run_ns": had, f"thread.load.{number}/wait_ns": waited}
    columns = [(since_ns * rate).alias(name) for name, rate in rates.items()]
    return msgspec.structs.replace(samples, frame=samples.frame.with_columns(columns))


def with_late_sample(samples: OsSamples, label: str, *, busy_s: float) -> OsSamples:
    """Add a thread that had a CPU for the first seconds of the load and none later; no sample saw it meanwhile."""
    frame = samples.frame
    worked_ns = (frame["t_s"] - START_S).clip(0.0, busy_s) * 1e9
    frame = frame.with_columns(
        worked_ns.alias(f"thread.{label}.9/run_ns"), pl.lit(0.0).alias(f"thread.{label}.9/wait_ns")
    )
    return msgspec.structs.replace(samples, frame=without_samples(frame, before_s=busy_s))


def without_samples(frame: pl.DataFrame, *, before_s: float) -> pl.DataFrame:
    """Leave out the samples within the first seconds of the load: the next one comes late."""
    return frame.filter((pl.col("t_s") <= START_S) | (pl.col("t_s") >= START_S + before_s))


def _look(waits: Waits, seconds: int, major: int) -> ServerSamples:
    first = json.loads((_DATA / "pg18" / "server.jsonl").read_text().splitlines()[0])
    header = msgspec.convert({**first, "version_num": major * 10_000 + 1}, ServerHeader)
    times = [START_S + second for second in range(seconds + 1)]
    columns: dict[str, list[float]] = {
        "t_s": times,
        "until_s": times,
        "cost_s": [0.0] * len(times),
        "n": [float(LOOKS)] * len(times),
    }
    for key, backends in waits.items():
        by_second = [backends] * seconds if isinstance(backends, float | int) else list(backends)
        columns["/".join(("wait", "client backend", *key))] = [0.0, *(LOOKS * each for each in by_second)]
    # Nobody asks what the server's own processes do.
    columns["wait/checkpointer//Activity/CheckpointerMain"] = [float(LOOKS)] * len(times)
    return ServerSamples(header=header, frame=pl.DataFrame(columns), end="asked to", torn="")
