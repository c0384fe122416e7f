from __future__ import annotations

import pytest

from pgdyno.facts.metrics import Better, all_metrics, find_metric

UNITS = {"tps", "ratio", "count", "bytes", "pages", "s", "ms", "/s", "bytes/s"}
ENDINGS = {
    "ratio": "_ratio",
    "bytes": "_bytes",
    "pages": "_pages",
    "s": "_s",
    "ms": "_ms",
    "bytes/s": "_bytes_per_s",
    "count": "_count",
}


def test_every_metric_has_a_known_unit_that_its_name_ends_in_and_a_sentence() -> None:
    for name, metric in all_metrics().items():
        assert metric.name == name
        assert metric.unit in UNITS
        assert name.endswith(ENDINGS.get(metric.unit, "")), name
        assert metric.meaning.endswith(".")


def test_counters_of_the_server_are_metrics_too_and_verdicts_know_their_way() -> None:
    assert find_metric("wal_bytes").unit == "bytes"
    assert find_metric("tps").better is Better.HIGHER
    assert find_metric("latency_p99_ms").better is Better.LOWER


def test_an_unknown_metric_is_a_mistake() -> None:
    with pytest.raises(LookupError, match="no metric is called speed"):
        find_metric("speed")
