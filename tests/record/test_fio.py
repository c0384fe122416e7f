"""On what fio 3.33 printed for two jobs on a virtual disk: tests/tools/capture_disk.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pgdyno.record.device.fio import parse_fio

DATA = Path(__file__).parents[1] / "data/disk"


def read(name: str) -> str:
    return (DATA / f"fio-{name}.json").read_text(encoding="utf-8")


def last_job(text: str) -> dict[str, Any]:
    """The last report, found another way: it is the only one that is left when what stands before it is cut off."""
    job: dict[str, Any] = json.loads(text[text.rindex('{\n  "fio version"') :])["jobs"][0]
    return job


def test_a_mixed_job() -> None:
    report = parse_fio(read("mixed"))
    said = last_job(read("mixed"))
    assert report.version == "fio-3.33"
    assert report.runtime_s == pytest.approx(1.0, abs=0.1)
    assert report.read is not None
    assert report.write is not None
    assert report.flush is None
    assert report.read.iops == said["read"]["iops"]
    assert report.write.bytes_per_s == said["write"]["bw_bytes"]
    assert report.moved_bytes == said["read"]["io_bytes"] + said["write"]["io_bytes"]
    assert report.read.iops / (report.read.iops + report.write.iops) == pytest.approx(0.7, abs=0.02)
    assert report.cpu_ratio == pytest.approx((said["usr_cpu"] + said["sys_cpu"]) / 100)


def test_latencies_are_microseconds_and_in_order() -> None:
    read_latency = parse_fio(read("mixed")).read.latency  # type: ignore[union-attr]
    said = last_job(read("mixed"))["read"]["lat_ns"]
    assert read_latency.count == said["N"]
    assert read_latency.mean_us == said["mean"] / 1000
    ordered = [
        read_latency.p50_us,
        read_latency.p95_us,
        read_latency.p99_us,
        read_latency.p999_us,
        # Percentiles are the upper end of fio's buckets, of a 64th of their value.
        read_latency.max_us * (1 + 1 / 64),
    ]
    assert ordered == sorted(ordered)


def test_spans_add_up_to_the_run() -> None:
    report = parse_fio(read("mixed"))
    assert len(report.spans) >= 3
    began_s = [0.0, *(span.t_s for span in report.spans)]
    ios = sum(span.iops * (span.t_s - begun) for span, begun in zip(report.spans, began_s, strict=False))
    said = last_job(read("mixed"))
    assert report.spans[-1].t_s == report.runtime_s
    assert ios == pytest.approx(said["read"]["total_ios"] + said["write"]["total_ios"])


def test_what_comes_while_the_queue_drains_is_no_span() -> None:
    whole = parse_fio(read("mixed"))
    cut = parse_fio(read("mixed"), load_s=0.7)
    assert 0 < len(cut.spans) < len(whole.spans)
    assert cut.spans == whole.spans[: len(cut.spans)]
    assert (cut.read, cut.runtime_s) == (whole.read, whole.runtime_s)


def test_flushes_are_told_apart_from_writes() -> None:
    report = parse_fio(read("wal"))
    assert report.read is None
    assert report.write is not None
    assert report.flush is not None
    # Each write waits for the flush before it: together they fill the run.
    busy_us = report.write.latency.mean_us + report.flush.mean_us
    assert 1e6 / busy_us == pytest.approx(report.write.iops, rel=0.05)


def test_notes_before_the_reports_are_passed_over() -> None:
    assert parse_fio("fio: this platform has no such thing\n" + read("wal")) == parse_fio(read("wal"))


@pytest.mark.parametrize("text", [read("killed"), "", "fio: cannot open\n", '{"jobs": []}'])
def test_what_is_no_whole_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fio"):
        parse_fio(text)


def test_a_job_that_failed_is_refused() -> None:
    with pytest.raises(ValueError, match="error 28"):
        parse_fio(read("wal").replace('"error" : 0', '"error" : 28'))
