"""Conditions of `--fail-if`: what they mean, and what is refused before anything is measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import SpecError
from pgdyno.spec.gate import Threshold, VerdictWord, parse_conditions
from tests.rows import check_rows

METRICS = ("tps", "latency_p95_ms", "wal_bytes")


def test_conditions_come_one_by_one_or_together() -> None:
    wanted = (
        VerdictWord.SLOWER,
        Threshold(metric="latency_p95_ms", bound_ratio=0.05, is_upper=True),
        Threshold(metric="tps", bound_ratio=-0.03, is_upper=False),
        VerdictWord.INCONCLUSIVE,
    )
    texts = ["slower", "latency_p95_ms>5%", "tps<-3%", "inconclusive"]
    assert parse_conditions(texts, metrics=METRICS) == wanted
    assert parse_conditions([",".join(texts)], metrics=METRICS) == wanted
    assert (
        parse_conditions([" slower , latency_p95_ms > +5.0 %", "tps < -3%,inconclusive,slower"], metrics=METRICS)
        == wanted
    )
    assert [one.text for one in wanted] == texts
    assert parse_conditions([], metrics=METRICS) == ()


@given(st.floats(0.01, 99.9))
def test_a_threshold_is_read_as_it_is_written(percent: float) -> None:
    (read,) = parse_conditions([f"wal_bytes<-{percent:.3f}%"], metrics=METRICS)
    assert parse_conditions([read.text], metrics=METRICS) == (read,)


REFUSED = [
    ("slow", ["slow: not a condition", "slower, worse, inconclusive", "'tps<-3%'"]),
    ("SLOWER", ["not a condition"]),
    ("slower,", ["a condition is empty"]),
    ("", ["a condition is empty"]),
    ("tps", ["not a condition", "quotes"]),
    ("tps<3", ["not a condition"]),
    ("tps<=-3%", ["not a condition"]),
    ("tps<-nan%", ["not a condition"]),
    ("p95>5%", ["no metric of a comparison is called p95", "latency_p95_ms"]),
    ("tps>5%", ["is a gain", "tps<-5%"]),
    ("latency_p95_ms<-5%", ["is a gain", "latency_p95_ms>5%"]),
    ("tps<3%", ["no change at all", "tps<-3%"]),
    ("wal_bytes>-3%", ["no change at all", "wal_bytes>3%"]),
    ("tps<-100%", ["no change is as large"]),
    (f"wal_bytes>{'9' * 400}%", ["no change is as large"]),
]


def test_what_is_no_condition_is_refused_with_the_known_words() -> None:
    def check(row: tuple[str, list[str]]) -> None:
        text, words = row
        with pytest.raises(SpecError) as caught:
            parse_conditions([text], metrics=METRICS)
        error = caught.value
        said = f"{error.fact} {error.detail} {error.hint}"
        assert all(word in said for word in words), said

    check_rows(REFUSED, check)
