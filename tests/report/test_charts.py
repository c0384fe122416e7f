"""Charts: valid Vega-Lite, thinned without losing a stall or a spike, gaps left open, colours that stand out."""

from __future__ import annotations

import json
import math

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.estimate import estimate_over_trials
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.report.charts import palette
from pgdyno.report.charts.evidence import evidence_chart, pairs_chart
from pgdyno.report.charts.intervals import intervals_chart
from pgdyno.report.charts.strip import strip_chart
from pgdyno.report.charts.sweep import curve_chart
from pgdyno.report.charts.thin import to_columns
from pgdyno.report.charts.trial import list_zero_charts, trial_charts
from pgdyno.report.document import list_charts
from pgdyno.report.forms.html import print_html
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.study import build_report as build_report_document
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_switchback
from tests.report.vega import check_spec, check_vega_lite, to_vega_lite


def _trial(**options: object) -> object:
    return build_report(names=("tpcb-like",), **options).analysis.workloads[0].trials[0]


def _series(values: list[float | None], label: str = "a") -> Series:
    t_s = tuple(float(second) for second in range(len(values)))
    return Series(metric="tps", label=label, unit="tps", t_s=t_s, values=tuple(values))


@pytest.mark.parametrize("is_hard", [False, True])
def test_every_chart_is_valid_vega_lite(is_hard: bool) -> None:
    charts = trial_charts(_trial(is_hard=is_hard))
    # It has no standbys.
    left_out = {ChartKind.STANDBY_LAG, *((ChartKind.PRESSURE,) if is_hard else ())}
    assert [chart.kind for chart in charts] == [kind.value for kind in ChartKind if kind not in left_out]
    strip = strip_chart(build_report().analysis.workloads[0])
    for chart in (*charts, strip):
        check_vega_lite(chart)


def test_the_charts_of_comparisons_are_valid_vega_lite() -> None:
    documents = (build_report_document(build_switchback()), build_report_document(build_client_sweep()))
    charts = [block.chart for document in documents for block in list_charts(document.blocks)]
    compared = [chart for chart in charts if not chart.is_timed and chart.kind != "strip"]
    assert {chart.kind for chart in compared} == {"intervals", "pairs", "evidence", "curve"}
    for chart in compared:
        check_vega_lite(chart)


def test_the_schema_check_can_fail() -> None:
    spec = to_vega_lite(trial_charts(_trial())[0])
    spec["layer"][0]["mark"] = {"type": "no such mark"}
    with pytest.raises(jsonschema.ValidationError):
        check_spec(spec)


@pytest.mark.parametrize(("from_s", "shown"), [(0.4, "0.400 s"), (1.8, "1.80 s"), (3.4, "3.40 s")])
def test_seconds_before_the_first_that_counts_are_not_called_unsteady(from_s: float, shown: str) -> None:
    report = build_report(names=("tpcb-like",), rounds=1)
    (workload,) = report.analysis.workloads
    trials = tuple(msgspec.structs.replace(trial, steady_from_s=from_s) for trial in workload.trials)
    analysis = msgspec.structs.replace(report.analysis, workloads=(msgspec.structs.replace(workload, trials=trials),))
    text = print_html(build_report_document(msgspec.structs.replace(report, analysis=analysis)))
    assert f"before the steady part: the first {shown}" in text
    assert "not steady" not in text


@pytest.mark.parametrize(
    ("duration_s", "units"), [(60, {"s"}), (1800, {"min", "s"}), (3599, {"min", "s"}), (7200, {"h", "min", "s"})]
)
def test_an_axis_of_time_has_hours_from_one_on(duration_s: int, units: set[str]) -> None:
    text = json.dumps(to_vega_lite(trial_charts(_trial(duration_s=duration_s))[0]))
    divided = {"h": "datum.value / 3600", "min": "datum.value / 60"}
    assert {unit for unit, words in divided.items() if words in text} | {"s"} == units


def test_all_points_are_drawn_unless_there_are_too_many() -> None:
    for points, shown, note in ((None, 720, ""), (1000, 720, ""), (360, 360, "4 samples")):
        chart = trial_charts(_trial(duration_s=720), points=points)[0]
        assert len(chart.columns[0]["t"]) == shown
        assert note in chart.note
        assert bool(note) == bool(chart.note)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=3, max_size=400), st.integers(2, 100))
def test_thinned_lines_keep_their_lowest_and_highest_value(values: list[float | None], points: int) -> None:
    (group,), step = to_columns([_series(values)], factor=1.0, points=points, is_stacked=False)
    drawn = [value for value in group["s0"] if value is not None]
    seen = [float(f"{value:.4g}") for value in values if value is not None]
    assert len(group["t"]) == len(group["s0"]) <= max(points + 1, len(values) if step == 1 else 0)
    assert (min(drawn, default=None), max(drawn, default=None)) == (min(seen, default=None), max(seen, default=None))
    assert group["t"] == sorted(group["t"])


def test_thinned_stacks_keep_their_mean_and_a_step_without_samples_stays_a_gap() -> None:
    (group,), step = to_columns([_series([1.0, 3.0, None, 5.0, None, None])], factor=10.0, points=3, is_stacked=True)
    assert step == 2
    assert group == {"t": [0.5, 2.5, 4.5], "s0": [20.0, 50.0, None]}


def test_series_with_other_sampling_times_stand_in_a_group_of_their_own() -> None:
    late = Series(metric="tps", label="b", unit="tps", t_s=(0.5, 1.5), values=(1.0, 2.0))
    groups, _ = to_columns([_series([1.0, 2.0]), late], factor=1.0, points=None, is_stacked=False)
    assert groups == ({"t": [0.0, 1.0], "s0": [1.0, 2.0]}, {"t": [0.5, 1.5], "s1": [1.0, 2.0]})


def test_a_gap_in_the_observation_is_null_in_the_data() -> None:
    chart = trial_charts(_trial(is_hard=True))[0]
    assert chart.columns[0]["s0"][20:24] == [None, None, None, chart.columns[0]["s0"][23]]


def test_a_value_without_neighbours_is_a_dot_and_an_area_of_one_moment_has_a_width() -> None:
    trial = _trial()
    (whole,) = trial_charts(msgspec.structs.replace(trial, charts={ChartKind.TPS: (_series([1.0, 2.0, None]),)}))
    gaps, moment = _series([1.0, None, 2.0, 3.0, None, 4.0], "b"), _series([0.2])
    both = {ChartKind.TPS: (_series([5.0]), gaps), ChartKind.CPU: (moment,)}
    lines, areas = trial_charts(msgspec.structs.replace(trial, charts=both))
    assert "lone" not in whole.marks
    assert lines.marks["lone"] == [
        {"t": 0.0, "field": "s0", "value": 5.0},
        {"t": 0.0, "field": "s1", "value": 1.0},
        {"t": 5.0, "field": "s1", "value": 4.0},
    ]
    assert "lone" not in areas.marks
    assert areas.columns == ({"t": [-0.3, 0.3], "s0": [0.2, 0.2]},)
    for chart in (whole, lines, areas):
        check_vega_lite(chart)


def test_marks_carry_the_checkpoint_and_the_part_that_is_not_steady() -> None:
    marks = trial_charts(_trial(duration_s=60))[0].marks
    assert marks["spans"] == [
        {"kind": "unsteady", "from": 0, "until": pytest.approx(4.8)},
        {"kind": "checkpoint", "from": pytest.approx(24.0), "until": pytest.approx(43.2)},
    ]
    assert [mark["kind"] for mark in marks["moments"]] == ["checkpoint"]


def test_a_chart_says_in_words_what_it_shows() -> None:
    charts = {chart.kind: chart for chart in trial_charts(_trial())}
    assert charts["tps"].alt.startswith(
        "Transactions per second over time in tps, trial 1: TPS mean 2,870, 1,840 to 3,520."
    )
    assert "checkpoint at 24 s" in charts["cpu"].alt
    assert (charts["cpu"].unit, charts["disk_throughput"].unit, charts["latency"].unit) == (
        "%",
        "MB/s",
        "ms, log scale",
    )


@pytest.mark.parametrize(
    ("unit", "value", "shown", "name"),
    [
        ("bytes/s", 250e6, 250.0, "MB/s"),
        ("bytes/s", 999e3, 999.0, "kB/s"),
        ("bytes/s", 1.5e9, 1.5, "GB/s"),
        ("bytes", 256.0 * 1024**2, 256.0, "MB"),
    ],
)
def test_a_chart_has_the_units_that_the_text_has(unit: str, value: float, shown: float, name: str) -> None:
    line = Series(metric="read", label="read", unit=unit, t_s=(0.5,), values=(value,))
    (chart,) = trial_charts(msgspec.structs.replace(_trial(), charts={ChartKind.DISK_THROUGHPUT: (line,)}))
    assert (chart.unit, chart.columns[0]["s0"]) == (name, [shown])


def test_a_chart_of_nothing_but_zeros_is_left_out_and_named_unless_it_is_of_the_load() -> None:
    trial = _trial()
    silent = Series(metric="tps", label="x", unit="count", t_s=(0.5, 1.5), values=(0.0, None))
    still = msgspec.structs.replace(trial, charts=dict.fromkeys((ChartKind.TPS, ChartKind.WAL), (silent,)))
    assert [chart.kind for chart in trial_charts(still)] == ["tps"]
    assert list_zero_charts(still) == ("WAL written",)


def _question(variant: str) -> Question:
    (answers, _) = answer_study(build_switchback())
    question = answers.comparison.find(variant, "tps")
    assert question is not None
    return question


def test_every_pair_is_a_dot_and_the_band_is_the_interval_of_the_verdict() -> None:
    question = _question("commit_delay=1000")
    chart = pairs_chart(question, title="Pairs")
    assert [dot["n"] for dot in chart.marks["pairs"]] == list(range(1, 25))
    assert [dot["change"] for dot in chart.marks["pairs"]] == pytest.approx(
        [100 * math.expm1(ratio) for ratio in question.log_ratios], rel=1e-3
    )
    last, verdict = chart.marks["looks"][-1], question.verdict
    assert (last["n"], last["low"], last["high"]) == (
        24, pytest.approx(100 * verdict.low_ratio, rel=1e-3), pytest.approx(100 * verdict.high_ratio, rel=1e-3)
    )  # fmt: skip
    assert chart.marks["looks"][0]["n"] == 6
    assert [line["y"] for line in chart.marks["bounds"]] == [pytest.approx(-2.913, rel=1e-3), 3.0]


def test_many_pairs_are_joined_and_the_chart_says_so_and_counts_those_beyond_it() -> None:
    question = _question("commit_delay=50")
    many = msgspec.structs.replace(
        question,
        log_ratios=(*question.log_ratios * 40, 3.0),
        verdict=msgspec.structs.replace(question.verdict, n=1641),
    )
    chart = pairs_chart(many, title="Pairs")
    assert len(chart.marks["pairs"]) == 547
    assert "Each dot is the mean of 3 neighbouring pairs" in chart.caption
    assert "1 of 1,641 pairs lie outside the chart" in chart.caption


def test_an_interval_that_leaves_the_chart_ends_in_an_arrow_with_its_figure() -> None:
    question = _question("commit_delay=50")
    wide = msgspec.structs.replace(question.verdict, effect_ratio=0.05, low_ratio=-0.02, high_ratio=0.8)
    for verdict, shown in ((wide, "+80 %"), (question.verdict, None)):
        chart = intervals_chart([verdict], titles={verdict.variant: "a"}, reference="stock")
        check_vega_lite(chart)
        assert chart is not None
        (row,) = chart.marks["intervals"]
        low, high = chart.spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
        assert row.get("beyond_end") == shown
        assert row.get("beyond") == (None if shown is None else high)
        assert "before" not in row
        # One that ends in the chart ends visibly before its edge.
        assert low < row["low"]
        assert shown is not None or row["high"] < high
    pairs = pairs_chart(msgspec.structs.replace(question, verdict=wide), title="Pairs")
    check_vega_lite(pairs)
    assert pairs is not None
    assert "beyond" in pairs.marks["end"][0]


def test_the_evidence_reaches_its_line_where_there_is_a_verdict() -> None:
    for variant, is_enough in (("commit_delay=1000", True), ("commit_delay=50", False)):
        question = _question(variant)
        chart = evidence_chart(question)
        values = [row["e"] for row in chart.marks["evidence"]]
        assert values[0] == 0
        assert max(values) == pytest.approx(question.verdict.log10_e_value, rel=1e-3)
        assert (max(values) > chart.marks["enough"][0]["y"]) is is_enough


def test_a_load_without_an_interval_is_no_dot() -> None:
    sweep = build_client_sweep(rounds=1, loads=(1, 2, 4)).analysis.sweeps["tpcb-like"]
    chart = curve_chart(sweep)
    assert chart.marks["points"] == []
    assert chart.caption == "Not drawn, because they have no interval yet: 1, 2, 4 clients."
    whole = build_client_sweep().analysis.sweeps["tpcb-like"]
    lone = msgspec.structs.replace(whole.points[1].tps, low=None, high=None, n=1)
    points = (whole.points[0], msgspec.structs.replace(whole.points[1], tps=lone), *whole.points[2:])
    in_part = curve_chart(msgspec.structs.replace(whole, points=points))
    assert "law" not in in_part.marks
    # Vega complains of a layer without data.
    assert {layer["data"]["name"] for layer in in_part.spec["layer"]} == set(in_part.marks)
    drawn = curve_chart(build_client_sweep().analysis.sweeps["tpcb-like"])
    assert [(point["clients"], point["status"]) for point in drawn.marks["points"]][-2:] == [
        (32, "peak"),
        (64, "collapse"),
    ]
    assert len(drawn.marks["law"]) == 80


def test_a_load_with_a_useless_interval_does_not_squeeze_the_others() -> None:
    whole = build_client_sweep().analysis.sweeps["tpcb-like"]
    drawn = curve_chart(whole)
    assert (drawn.caption, [point for point in drawn.marks["points"] if "beyond" in point]) == ("", [])
    wide = msgspec.structs.replace(whole.points[1].tps, high=7e11)
    points = (whole.points[0], msgspec.structs.replace(whole.points[1], tps=wide), *whole.points[2:])
    chart = curve_chart(msgspec.structs.replace(whole, points=points))
    check_vega_lite(chart)
    assert chart.caption == "An interval that ends in an arrow goes on beyond the axis."
    highest = max(point["high"] for point in drawn.marks["points"])
    assert [point.get("beyond") for point in chart.marks["points"]] == [
        highest if place == 1 else None for place in range(len(points))
    ]
    assert max(point["high"] for point in chart.marks["points"]) == highest


def test_a_knee_or_a_peak_that_is_not_settled_is_no_line() -> None:
    sweep = build_client_sweep().analysis.sweeps["tpcb-like"]
    assert [mark["kind"] for mark in curve_chart(sweep).marks["at"]] == ["knee", "highest TPS"]
    unsettled = msgspec.structs.replace(sweep, peak=msgspec.structs.replace(sweep.peak, high=None))
    chart = curve_chart(unsettled)
    assert [mark["kind"] for mark in chart.marks["at"]] == ["knee"]
    assert "highest TPS" not in {entry.label for entry in chart.legend}


def test_no_strip_for_a_single_trial() -> None:
    assert strip_chart(build_report(rounds=1).analysis.workloads[0]) is None


@pytest.mark.parametrize(
    ("trials", "bar", "caption"),
    [
        ((100.0, 101.0, 102.0), 1, "Dots are trials, the line is their mean, the bar its 95 % interval."),
        # The table calls an interval of this width too wide.
        ((50.0, 100.0, 200.0), 0, "Dots are trials, the line is their mean."),
    ],
)
def test_the_trials_are_drawn_above_an_interval_only_if_it_is_of_use(
    trials: tuple[float, ...], bar: int, caption: str
) -> None:
    workload = build_report(rounds=3).analysis.workloads[0]
    of = tuple(msgspec.structs.replace(trial, tps=tps) for trial, tps in zip(workload.trials, trials, strict=True))
    tps = estimate_over_trials(trials, unit="tps")
    chart = strip_chart(msgspec.structs.replace(workload, trials=of, tps=tps))
    assert chart is not None
    assert (len(chart.marks["spans"]), chart.caption) == (bar, caption)
    assert len(chart.spec["layer"]) == 2 + bar


def _contrast(one: str, other: str) -> float:
    """Source: WCAG 2.2, definitions of relative luminance and contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [palette.LIGHT, palette.DARK])
def test_text_and_hues_stand_out(colours: dict[str, str]) -> None:
    assert palette.LIGHT.keys() == palette.DARK.keys()
    for ground in ("paper", "panel"):
        for words in ("ink", "muted", "accent", "critical", "warning", "note"):
            assert _contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    for hue in palette.SERIES:
        assert _contrast(colours[hue], colours["paper"]) >= 3, hue
