"""What `sweep 'latency<...'` asks, and how a search is told while it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.search import describe_search
from pgdyno.errors import SpecError
from pgdyno.flow.compare import compose_sweep
from pgdyno.spec.read import format_study, parse_study
from pgdyno.spec.study import Study
from tests.analyse.searches import Machine, run_search


def sweep(*axes: str, **experiment: object) -> Study:
    load = {"rate_tps": experiment.pop("rate")} if "rate" in experiment else {}
    return compose_sweep(
        axes=axes,
        workloads=[],
        load=load,
        tables={"server": {}, "data": {}, "trials": {}, "experiment": experiment},
        folder=Path("/"),
    )


@pytest.mark.parametrize(
    ("text", "latency", "percentile"),
    [
        ("latency<20ms@p99", "20ms", 99.0),
        ("latency<=1.5s@p99.9", "1.5s", 99.9),
        (" latency < 20ms @ p95 ", "20ms", 95.0),
        ("latency<20ms", "20ms", 99.0),
    ],
)
def test_a_latency_limit_is_searched_for(text: str, latency: str, percentile: float) -> None:
    study = sweep(text, detect="5%", minutes=7)
    assert study.search is not None
    assert (study.search.latency, study.search.percentile, study.search.resolution) == (latency, percentile, "5%")
    assert study.experiment.minutes == 7
    assert study.question == f"How many TPS hold p{percentile:g} < {latency}?"
    assert not study.is_comparison
    assert parse_study(format_study(study), source="again", folder=Path()) == study


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency=20ms", "the limit needs quotes"),
        ("latency", "the limit needs quotes"),
        ("latency<", "the limit needs quotes"),
        ("latency>20ms", "the limit needs quotes"),
        ("latency<20ms@99", "the limit needs quotes"),
        ("latency@p99", "the limit needs quotes"),
        ("latency<20@p99", "latency: '20' has no unit"),
        ("latency<-5ms@p99", "latency: -5ms is not within 0.1ms to 10min"),
        ("latency<20ms@p100", "percentile: 100 is not within 50 to 99.9"),
        ("latency<20ms@p5", "percentile: 5 is not within 50 to 99.9"),
    ],
)
def test_what_is_no_latency_limit_is_said_in_words(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(text)
    assert words in f"{caught.value.fact} {caught.value.detail}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 100.0}, "--rate: is chosen by the search"),
        ({"design": "paired"}, "--design: applies only to comparisons"),
        ({"detect": "90%"}, "--detect: 90% is not within 1% to 50%"),
    ],
)
def test_options_that_a_search_has_no_use_for(options: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        sweep("latency<20ms@p99", **options)


def test_a_limit_is_searched_for_alone() -> None:
    with pytest.raises(SpecError, match="searched for alone"):
        sweep("latency<20ms@p99", "clients=1,2")


def test_a_line_tells_how_the_search_stands() -> None:
    first, *_, last = run_search(Machine(limit_tps=640.0, sd=0.02), seed=5)
    assert first.answer is not None
    assert describe_search(first, left=39).endswith("tps, no rate settled yet, needs more than the 39 trials left")
    near = msgspec.structs.replace(first, answer=msgspec.structs.replace(first.answer, trials_needed=12))
    assert describe_search(near, left=12).endswith("tps, no rate settled yet, needs about 12 more trials")
    assert describe_search(near, left=0).endswith("tps, no rate settled yet")
    assert last.answer is not None
    told = describe_search(last, left=9)
    assert f"{last.answer.holds_tps:g} tps holds, {last.answer.fails_tps:g} tps fails" in told
    assert "more" not in told
    early = msgspec.structs.replace(first, answer=None)
    assert describe_search(early, left=9).startswith("capacity ")
    none = msgspec.structs.replace(early, capacity=msgspec.structs.replace(early.capacity, value=None))
    assert describe_search(none, left=9) == "no capacity yet"
