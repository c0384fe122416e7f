from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.analyse.episodes.detection import DetectedEpisodes, describe_episodes, find_episodes, find_trial_episodes
from pgdyno.analyse.episodes.fit import Shape, ShapeTemplate, find_shapes
from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.trial.charts import chart_trial
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from tests.examples import TIMES

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = tomllib.loads((DATA / "published_timeline.toml").read_text())


def make_noise(seed: int, *, length: int, correlation: float, variation: float = 0.05) -> np.ndarray:
    """Around 1, with so large a coefficient of variation: stationary AR(1)."""
    innovations = np.random.default_rng(seed).normal(size=length + 200)
    noise = np.zeros_like(innovations)
    for t in range(1, len(noise)):
        noise[t] = correlation * noise[t - 1] + innovations[t]
    return np.maximum(1 + variation * noise[200:] * np.sqrt(1 - correlation**2), 0.0)


def look(values: np.ndarray, *, step_s: float = 1.0, metric: str = "tps") -> DetectedEpisodes:
    return find_episodes((np.arange(len(values)) + 0.5) * step_s, [float(value) for value in values], metric=metric)


def find(values: np.ndarray, kind: EpisodeKind) -> Episode:
    """The only episode of its kind."""
    (found,) = [one for one in look(values).episodes if one.kind is kind]
    return found


def test_the_published_drop_after_ten_seconds_is_found_with_its_size() -> None:
    (cliff,) = look(np.array(PUBLISHED["os-tuned"]["tps"], dtype=float), step_s=5.0).episodes
    assert cliff.kind is EpisodeKind.CLIFF
    assert cliff.from_s == pytest.approx(10, abs=2)
    assert cliff.until_s is None
    assert (cliff.before, cliff.after) == (pytest.approx(15_300, rel=0.02), pytest.approx(8_500, rel=0.02))
    assert cliff.change_low_ratio is not None
    assert cliff.change_high_ratio is not None
    # Of the means of 5 s themselves, the last four against the first two.
    assert cliff.change_low_ratio <= 8_564 / 15_312 - 1 <= cliff.change_high_ratio
    assert cliff.change_high_ratio - cliff.change_low_ratio < 0.1
    assert cliff.settled_s == pytest.approx(15, abs=5)


def test_the_weaker_drop_of_the_next_published_run_is_not_found() -> None:
    """docs/how-we-know.md says so."""
    assert not look(np.array(PUBLISHED["os-and-pg-tuned"]["tps"], dtype=float), step_s=5.0).episodes


@pytest.mark.parametrize("length", [30, 60, 120])
@pytest.mark.parametrize(("correlation", "variation"), [(0.5, 0.05), (0.5, 0.2), (0.8, 0.1), (0.95, 0.05), (0.95, 0.2)])
def test_noise_is_rarely_taken_for_an_episode(length: int, correlation: float, variation: float) -> None:
    count = 100
    found = [
        look(3000 * make_noise(seed, length=length, correlation=correlation, variation=variation)).episodes
        for seed in range(count)
    ]
    assert sum(any(one.kind is EpisodeKind.CLIFF for one in episodes) for episodes in found) <= 0.05 * count
    # Of all kinds together; 5 % is the rate, and 9 of 100 its upper end at 95 %.
    assert sum(map(bool, found)) <= 0.09 * count


def stand_out(values: np.ndarray, seed: int, *, share: float, factor: float) -> np.ndarray:
    """Multiply single values at random moments."""
    return np.where(np.random.default_rng([seed, 1]).random(len(values)) < share, factor, 1.0) * values


@pytest.mark.parametrize(
    ("metric", "length", "variation", "share", "factor"),
    [
        ("tps", 60, 0.04, 0.03, 0.4),
        ("tps", 120, 0.04, 0.03, 0.4),
        ("tps", 30, 0.04, 0.1, 0.4),
        ("latency_p99_ms", 120, 0.2, 0.03, 10.0),
    ],
)
def test_single_seconds_that_stand_out_at_random_are_rarely_taken_for_an_episode(
    metric: str, length: int, variation: float, share: float, factor: float
) -> None:
    noise = (make_noise(seed, length=length, correlation=0.0, variation=variation) for seed in range(60))
    found = [
        look(stand_out(3000 * values, seed, share=share, factor=factor), metric=metric).episodes
        for seed, values in enumerate(noise)
    ]
    # Before chance was asked, 3 to 11 of them.
    assert sum(map(bool, found)) <= 3


def test_single_seconds_that_stand_out_hide_no_cliff_and_no_cycle() -> None:
    at, found = np.arange(120), []
    for seed in range(20):
        values = stand_out(3000 * make_noise(seed, length=120, correlation=0.5), seed, share=0.05, factor=0.4)
        found.append(look(np.where(at >= 66, 0.6, 1.0) * values).episodes)
    assert sum(any(one.kind is EpisodeKind.CLIFF for one in each) for each in found) >= 19
    saw = find(
        np.where((at - 5) % 12 < 2, 0.5, 1.0) * 3000 * make_noise(1, length=120, correlation=0.5), EpisodeKind.SAWTOOTH
    )
    assert saw.period_s == pytest.approx(12, abs=0.5)


@pytest.mark.parametrize(("length", "least"), [(30, 0.6), (60, 0.9), (120, 0.95)])
def test_a_drop_of_two_fifths_is_found(length: int, least: float) -> None:
    at, count, found, covered = round(0.55 * length), 40, 0, 0
    for seed in range(count):
        values = 3000 * make_noise(seed, length=length, correlation=0.5, variation=0.1)
        values[at:] *= 0.6
        cliffs = [one for one in look(values).episodes if one.kind is EpisodeKind.CLIFF]
        found += bool(cliffs)
        covered += any((one.change_low_ratio or 0.0) <= -0.4 <= (one.change_high_ratio or 0.0) for one in cliffs)
    assert found >= least * count
    assert covered >= 0.8 * found


def test_a_drop_that_ends_has_its_recovery() -> None:
    values = 3000 * make_noise(1, length=120, correlation=0.5)
    values[40:56] *= 0.5
    cliff, back = find(values, EpisodeKind.CLIFF), find(values, EpisodeKind.RECOVERY)
    assert cliff.from_s == pytest.approx(40, abs=2)
    assert cliff.until_s == pytest.approx(56, abs=2)
    assert cliff.recovery_s == pytest.approx(16, abs=3)
    assert cliff.change_ratio == pytest.approx(-0.5, abs=0.06)
    assert back.from_s == cliff.until_s
    assert (1 + back.change_ratio) * (1 + cliff.change_ratio) == pytest.approx(1, abs=0.1)


def test_a_drop_that_is_half_made_good_stays_one() -> None:
    values = 3000 * make_noise(2, length=120, correlation=0.5)
    values[40:] *= 0.4
    values[80:] *= 1.6
    cliff = find(values, EpisodeKind.CLIFF)
    assert (cliff.until_s, cliff.recovery_s) == (None, None)
    back = find(values, EpisodeKind.RECOVERY)
    assert back.from_s == pytest.approx(80, abs=4)
    assert back.change_ratio == pytest.approx(0.6, abs=0.1)
    assert cliff.change_ratio == pytest.approx(-0.6, abs=0.06)


def test_a_stall_is_found_to_the_second_and_is_no_drop_besides() -> None:
    values = 3000 * make_noise(3, length=60, correlation=0.5)
    values[30:33] = 0.0
    values[33] *= 0.5
    (stall,) = look(values).episodes
    assert (stall.kind, stall.from_s, stall.until_s, stall.after) == (EpisodeKind.STALL, 30.0, 33.0, 0.0)
    assert stall.recovery_s == 4.0


@pytest.mark.parametrize(("length", "still"), [(60, 16), (60, 40), (120, 30), (600, 16), (600, 300), (3600, 40)])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_stall_of_any_length_is_found_to_the_second_in_a_trial_of_any_length(
    length: int, still: int, share: float
) -> None:
    values, begin = 3000 * make_noise(3, length=length, correlation=0.5), (length - still) // 2
    values[begin : begin + still] *= share
    (stall,) = look(values).episodes
    assert (stall.kind, stall.from_s, stall.until_s) == (EpisodeKind.STALL, begin, begin + still)
    assert (stall.before, stall.after) == (pytest.approx(3000, rel=0.1), pytest.approx(3000 * share, rel=0.1))


@pytest.mark.parametrize(
    ("low", "share", "still", "after", "kinds"),
    [
        pytest.param(4, 0.6, 1, 1.0, {EpisodeKind.SAWTOOTH, EpisodeKind.STALL}, id="beside a stall of a second"),
        pytest.param(4, 0.6, 5, 1.0, {EpisodeKind.SAWTOOTH, EpisodeKind.STALL}, id="beside a stall of 5 s"),
        pytest.param(4, 0.6, 16, 1.0, {EpisodeKind.SAWTOOTH, EpisodeKind.STALL}, id="beside a stall of 16 s"),
        pytest.param(8, 0.05, 0, 1.0, {EpisodeKind.SAWTOOTH}, id="so deep that its low parts could be stalls"),
        pytest.param(
            2, 0.5, 0, 0.7, {EpisodeKind.SAWTOOTH, EpisodeKind.CLIFF}, id="of seconds that stand out, beside a cliff"
        ),
    ],
)
def test_a_cycle_is_found_with_its_period(
    low: int, share: float, still: int, after: float, kinds: set[EpisodeKind]
) -> None:
    at = np.arange(120)
    for seed in range(3):
        values = 3000 * make_noise(seed, length=120, correlation=0.5) * np.where((at - 5) % 12 < low, share, 1.0)
        values[37 + seed : 37 + seed + still] = 0.0
        values[66:] *= after
        found = look(values).episodes
        assert {one.kind for one in found} == kinds
        assert [one.period_s for one in found if one.period_s] == [pytest.approx(12, abs=0.5)]


def test_long_stalls_at_equal_distances_are_a_cycle_besides() -> None:
    at = np.arange(290)
    found = look(3000 * make_noise(1, length=290, correlation=0.5) * np.where((at - 5) % 30 < 20, 0.03, 1.0)).episodes
    assert [one.from_s for one in found if one.kind is EpisodeKind.STALL] == list(range(5, 260, 30))
    (saw,) = (one for one in found if one.kind is not EpisodeKind.STALL)
    assert (saw.kind, saw.period_s) == (EpisodeKind.SAWTOOTH, pytest.approx(30, abs=1))


def test_standstills_close_together_are_stalls_and_no_drops() -> None:
    begins, at = (30, 47, 64), np.arange(120)
    for seed in range(5):
        values = 3000 * make_noise(seed, length=120, correlation=0.5)
        for begin in begins:
            values[begin : begin + 12] = 0.0
        found = look(values).episodes
        assert [(one.kind, one.from_s, one.until_s) for one in found] == [
            (EpisodeKind.STALL, begin, begin + 12) for begin in begins
        ]
    # Clients that began together, with transactions of 3 s.
    assert not any(one.kind is EpisodeKind.STALL for one in look(np.where(at % 3 == 2, 40.0, 0.0)).episodes)


def test_too_few_seconds_beside_a_stall_are_the_reason() -> None:
    values = 3000 * make_noise(3, length=60, correlation=0.5)
    values[5:50] = 0.0
    course = look(values)
    assert [one.kind for one in course.episodes] == [EpisodeKind.STALL]
    assert course.reason == "13 s beside its stalls are too short to tell a change from noise"
    # Nearly every second of these is a stall or touches one.
    many = look(np.where(np.arange(60) % 3 == 2, 0.0, 3000 * make_noise(3, length=60, correlation=0.5)))
    assert {one.kind for one in many.episodes} == {EpisodeKind.STALL}
    assert many.reason == "3 s beside its stalls are too short to tell a change from noise"


def test_what_lasts_to_the_end_is_no_stall_and_hides_none() -> None:
    values = 3000 * make_noise(3, length=120, correlation=0.5)
    values[80:] *= 0.08
    values[100:104] = 0.0
    assert [one.kind for one in look(values).episodes] == [EpisodeKind.CLIFF, EpisodeKind.STALL]


def test_a_cliff_after_a_stall_is_placed_in_the_time_of_the_trial() -> None:
    values = 3000 * make_noise(3, length=120, correlation=0.5)
    values[20:50] = 0.0
    values[80:] *= 0.6
    stall, fall = look(values).episodes
    assert (stall.kind, stall.until_s) == (EpisodeKind.STALL, 50)
    assert (fall.kind, fall.from_s) == (EpisodeKind.CLIFF, pytest.approx(80, abs=2))


def test_few_transactions_a_second_are_no_stalls() -> None:
    values = np.random.default_rng(4).poisson(2.0, 120).astype(float)
    assert (values == 0).sum() > 5
    assert look(values).episodes == ()


def test_checkpoints_make_a_sawtooth_and_not_a_row_of_cliffs() -> None:
    at = np.arange(120)
    (saw,) = look(3000 * make_noise(5, length=120, correlation=0.5) * np.where((at - 8) % 24 < 8, 0.6, 1.0)).episodes
    assert saw.kind is EpisodeKind.SAWTOOTH
    assert saw.period_s == pytest.approx(24, abs=1)
    assert saw.recovery_s == pytest.approx(8, abs=2)
    assert saw.from_s % 24 == pytest.approx(8, abs=2)
    assert saw.change_ratio == pytest.approx(-0.4, abs=0.06)


def test_a_slow_fall_is_a_decline() -> None:
    decline = find(
        3000 * make_noise(6, length=300, correlation=0.3, variation=0.02) * np.linspace(1, 0.6, 300),
        EpisodeKind.DECLINE,
    )
    assert decline.change_ratio == pytest.approx(-0.4, abs=0.06)
    assert (decline.until_s, decline.settled_s) == (None, None)


def test_a_warm_up_ends_where_it_levels_off() -> None:
    at = np.arange(120)
    warm = find(3000 * make_noise(7, length=120, correlation=0.5) * (1 - 0.6 * np.exp(-at / 8)), EpisodeKind.WARM_UP)
    assert warm.from_s == pytest.approx(0, abs=2)
    assert warm.until_s == pytest.approx(24, abs=12)
    assert warm.after == pytest.approx(3000, rel=0.05)


def test_of_latency_a_rise_is_the_drop() -> None:
    random = np.random.default_rng(8)
    values = np.exp(np.log(12.0) + 0.3 * random.normal(size=90))
    assert look(values, metric="latency_p99_ms").episodes == ()
    values[50:] *= 2.5
    (cliff,) = look(values, metric="latency_p99_ms").episodes
    assert cliff.kind is EpisodeKind.CLIFF
    assert cliff.change_low_ratio is not None
    assert cliff.change_high_ratio is not None
    assert cliff.change_low_ratio <= 1.5 <= cliff.change_high_ratio


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.full(5, 3000.0), "5 s are too short"),
        (np.full(1, 3000.0), "fewer than two"),
        (np.full(40, 0.0), "too few observations above 0"),
        (np.full(40, 0.3), "too few transactions"),
    ],
)
def test_what_cannot_be_judged_has_its_reason(values: np.ndarray, words: str) -> None:
    course = look(values)
    assert course.episodes == ()
    assert course.reason is not None
    assert words in course.reason


def test_flat_and_exactly_stepped_series_need_no_noise() -> None:
    assert look(np.full(60, 500.0)) == DetectedEpisodes(episodes=())
    cliff = find(np.repeat([500.0, 400.0], [39, 21]), EpisodeKind.CLIFF)
    assert cliff.from_s == pytest.approx(39, abs=1)
    assert cliff.change_ratio == pytest.approx(-0.2, abs=0.01)


def test_moments_without_an_observation_are_bridged() -> None:
    values = [float(value) for value in 3000 * make_noise(9, length=60, correlation=0.5)]
    assert (
        find_episodes(np.arange(60) + 0.5, [None if i in {7, 30} else v for i, v in enumerate(values)]).episodes == ()
    )


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 100))
@settings(max_examples=15 * TIMES, deadline=None)
def test_the_unit_does_not_matter(seed: int, factor: float) -> None:
    values = 3000 * make_noise(seed, length=60, correlation=0.5)
    values[35:] *= 0.6
    plain, scaled = look(values).episodes, look(factor * values).episodes
    assert [one.kind for one in plain] == [one.kind for one in scaled]
    assert [one.change_ratio for one in plain] == pytest.approx([one.change_ratio for one in scaled])


@pytest.mark.parametrize("shape", [Shape.STEP, Shape.DENT, Shape.CYCLE])
def test_a_template_is_the_mean_over_each_observation(shape: Shape) -> None:
    template = ShapeTemplate(shape=shape, start=3.3, stop=20.0, period=5.5 if shape is Shape.CYCLE else None, width=2.2)
    fine = (np.arange(20 * 1000) + 0.5) / 1000
    inside = (fine - 3.3) % 5.5 < 2.2 if shape is Shape.CYCLE else fine >= 3.3
    assert template.draw(20) == pytest.approx(inside.reshape(20, 1000).mean(axis=1), abs=2e-3)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(9.5, 11.5), (9.75, 12.25), (10.0, 11.5), (10.0, 12.0), (10.25, 12.0), (10.25, 13.75), (9.5, 14.75)],
)
def test_a_short_dent_is_placed_within_its_observations(start: float, stop: float) -> None:
    noise = 0.001 * np.random.default_rng(12).normal(size=20)
    down, up = find_shapes(noise - 0.5 * ShapeTemplate(shape=Shape.DENT, start=start, stop=stop).draw(20))
    assert (down.template.start, up.template.start) == (start, stop)
    assert (down.size, up.size) == (pytest.approx(-0.5, abs=0.01), pytest.approx(0.5, abs=0.01))


def charts_of(values: np.ndarray) -> dict[ChartKind, tuple[Series, ...]]:
    t_s = tuple((np.arange(len(values)) + 0.5).tolist())
    series = Series(metric="tps", label="TPS", unit="tps", t_s=t_s, values=tuple(values.tolist()))
    return {ChartKind.TPS: (series,)}


def test_levels_that_were_given_are_no_episodes() -> None:
    values = 3000 * make_noise(10, length=60, correlation=0.5)
    values[30:] *= 0.5
    charts = charts_of(values)
    assert find_trial_episodes(charts, is_mixed=False, is_scheduled=False).episodes
    mixed = find_trial_episodes(charts, is_mixed=True, is_scheduled=False)
    assert (mixed.episodes, mixed.reason) == ((), "variants alternate within it, and its levels with them")
    values[20:23] = 0.0
    scheduled = find_trial_episodes(charts_of(values), is_mixed=False, is_scheduled=True)
    assert [one.kind for one in scheduled.episodes] == [EpisodeKind.STALL]
    assert find_trial_episodes({}, is_mixed=False, is_scheduled=False).reason == "there are no seconds to look at"


def test_changes_of_level_are_events_for_the_charts() -> None:
    values = 3000 * make_noise(11, length=60, correlation=0.5)
    values[30:] *= 0.5
    (event,) = describe_episodes(look(values).episodes)
    assert (event.kind, event.until_s) == ("level shift", None)
    assert event.t_s == pytest.approx(30, abs=2)
    assert event.text.startswith("cliff: ")


@pytest.mark.parametrize(
    "folder", [DATA / "records" / "v1-pg18", DATA / "records" / "v1-pg15", DATA / "episodes" / "quiet"]
)
def test_real_quiet_records_have_none(folder: Path) -> None:
    store = open_record(folder)
    for trial in store.read_trials():
        data = read_trial_data(store.trial_dir(trial.planned.number), trial)
        assert find_trial_episodes(chart_trial(data, disk=None), is_mixed=False, is_scheduled=False).episodes == ()
