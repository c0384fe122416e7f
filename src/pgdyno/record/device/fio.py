"""Parse what fio prints with `--output-format=json --status-interval`: cumulative reports at intervals.

The differences of consecutive reports are the parts of a run, which show where burst performance ends. Figures are
fio's own. A report that is cut off because fio was killed is refused, not treated as a shorter run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from pgdyno.record.device.disk_card import Direction, Latencies, RunPart

# Source: fio 3.33 HOWTO, percentile_list and "Interpreting the output"; keys of `percentile` have six decimals.
PERCENTILES = (50.0, 95.0, 99.0, 99.9)
# The last two reports may be close together; a rate over a shorter time than this means little.
_SHORTEST_SPAN_S = 0.08
# A run may end this much late; fio counts in milliseconds.
_LATE_S = 0.02


class FioReport(msgspec.Struct, frozen=True, kw_only=True):
    """Fio's results of a completed job."""

    version: str
    runtime_s: float
    read: Direction | None
    write: Direction | None
    flush: Latencies | None
    spans: tuple[RunPart, ...]
    moved_bytes: int
    """Bytes read plus bytes written."""
    cpu_ratio: float


class _Times(msgspec.Struct):
    """Latencies in nanoseconds."""

    N: int
    mean: float
    max: float
    percentile: dict[str, float] = {}


class _Side(msgspec.Struct):
    io_bytes: int
    bw_bytes: float
    iops: float
    total_ios: int
    lat_ns: _Times


class _Flushes(msgspec.Struct):
    lat_ns: _Times | None = None


class _Job(msgspec.Struct):
    error: int
    read: _Side
    write: _Side
    sync: _Flushes
    job_runtime: float
    """Milliseconds."""
    usr_cpu: float
    sys_cpu: float

    @property
    def ios(self) -> int:
        return self.read.total_ios + self.write.total_ios


class _Report(msgspec.Struct):
    jobs: list[_Job]
    version: str = msgspec.field(name="fio version")


def parse_fio(text: str, *, load_s: float | None = None, processes: int = 1) -> FioReport:
    """Parse the last of fio's reports, and derive the parts of the run from the earlier ones.

    Args:
        text: Complete output of fio.
        load_s: When fio stops submitting; the queue that drains afterwards is not part of the run. None where it
            submits to the end.
        processes: Processes of the job, which are reported together: fio sums up their times, and averages their CPU.

    Raises:
        ValueError: There is no report, the last one is cut off, or fio reports that its job failed.
    """
    reports = list(_read_reports(text))
    if not reports or not all(report.jobs for report in reports):
        raise ValueError("fio has reported nothing")
    job = reports[-1].jobs[0]
    if job.error:
        raise ValueError(f"fio's job failed with error {job.error}")
    return FioReport(
        version=reports[-1].version,
        runtime_s=job.job_runtime / 1000 / processes,
        read=_direction(job.read),
        write=_direction(job.write),
        flush=_latencies(job.sync.lat_ns),
        spans=tuple(_derive_spans([report.jobs[0] for report in reports], load_s, processes)),
        moved_bytes=job.read.io_bytes + job.write.io_bytes,
        cpu_ratio=(job.usr_cpu + job.sys_cpu) / 100,
    )


def _read_reports(text: str) -> Iterator[_Report]:
    """Yield the reports in fio's output, which may begin with messages."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            said, end = decoder.raw_decode(text, start)
            yield msgspec.convert(said, _Report)
        except (json.JSONDecodeError, msgspec.ValidationError) as exc:
            raise ValueError(f"fio's report is cut off or not understood: {exc}") from exc
        start = text.find("{", end)


def _direction(side: _Side) -> Direction | None:
    latency = _latencies(side.lat_ns)
    if latency is None:
        return None
    return Direction(iops=side.iops, bytes_per_s=side.bw_bytes, latency=latency)


def _latencies(times: _Times | None) -> Latencies | None:
    if times is None or not times.N:
        return None
    p50, p95, p99, p999 = (times.percentile[f"{percentile:.6f}"] / 1000 for percentile in PERCENTILES)
    return Latencies(
        count=times.N,
        mean_us=times.mean / 1000,
        p50_us=p50,
        p95_us=p95,
        p99_us=p99,
        p999_us=p999,
        max_us=times.max / 1000,
    )


def _derive_spans(jobs: list[_Job], load_s: float | None, processes: int) -> Iterator[RunPart]:
    """Yield a part of the run for each pair of consecutive reports; the first part begins with the run."""
    until_s = math.inf if load_s is None else load_s + _LATE_S
    marks = [(0.0, 0)]
    for mark in ((job.job_runtime / 1000 / processes, job.ios) for job in jobs):
        if mark[0] > until_s:
            break
        if mark[0] - marks[-1][0] >= _SHORTEST_SPAN_S:
            marks.append(mark)
        elif len(marks) > 1:
            marks[-1] = mark
    for (began_s, before), (ended_s, after) in pairwise(marks):
        yield RunPart(t_s=ended_s, iops=(after - before) / (ended_s - began_s))
