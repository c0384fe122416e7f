"""What a report says of verdicts: each with its interval, its pairs and its price, and never more than was decided."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import msgspec
import pytest

from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.sweep.statuses import LoadStatus
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.facts.metrics import all_metrics
from pgdyno.plan.places import Place
from pgdyno.record.types import PlaceFacts
from pgdyno.report.document import ChartBlock, Section
from pgdyno.report.format import format_effect, format_more_time, format_roughly, format_within
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.sections.comparison.course import courses_table
from pgdyno.report.sections.comparison.curve import describe_curve, describe_missing_knee
from pgdyno.report.sections.comparison.method import describe_method, describe_noise
from pgdyno.report.sections.comparison.section import build_comparisons, build_verdicts
from pgdyno.report.sections.comparison.tables import matrix_table, verdict_table
from pgdyno.report.sections.comparison.variants import describe_variants, variants_table
from pgdyno.report.sections.durability import find_durability_given_up
from pgdyno.report.sections.head import describe_study
from pgdyno.report.sections.machine import places_table
from pgdyno.report.study import build_report as build_report_document
from pgdyno.report.verdict_words import METRIC_WORDS, describe_outlook, describe_verdict, state_verdict
from pgdyno.spec.initdb import InitdbChoices
from tests.report.build import build_report
from tests.report.build_comparison import (
    build_client_sweep,
    build_paired,
    build_product,
    build_split,
    build_switchback,
)


def make_verdict(kind: VerdictKind = VerdictKind.SLOWER, **changes: object) -> Verdict:
    plain = Verdict(
        kind=kind, variant="commit_delay=1000", metric="tps", n=41, effect_ratio=-0.2249, low_ratio=-0.2511, high_ratio=-0.1969,
        confidence=0.95, delta_ratio=0.03, log10_e_value=7.0, pairs_needed=0, detectable_ratio=0.0403,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize(
    ("effect", "low", "high", "shown"),
    [
        (-0.2249, -0.2511, -0.1969, "-22.5 % [-25.1, -19.7]"),
        (-0.009, -0.028, 0.011, "-0.9 % [-2.8, +1.1]"),
        (0.0002, -0.011, 0.012, "0.0 % [-1.1, +1.2]"),
        (1.5, 1.19, 1.85, "+150 % [+119, +185]"),
        (0.1, -0.5, 2.0, "+10 % [-50, +200]"),
        (-0.2, -0.98, 49.3, "-20 % [-98, +4,900]"),
        (-0.98016, -0.98104, -0.97924, "-98.02 % [-98.10, -97.92]"),
        (0.02, 0.02, 0.02, "+2.00 % [+2.00, +2.00]"),
        # What leaves out 0 is not shown to hold it, unless a hundredth does not tell.
        (-0.13, -0.229, -0.004, "-13 % [-23, -0.4]"),
        (0.2, 0.0004, 0.5, "+20 % [+0.04, +50]"),
        (0.3028, 0.00098, 0.6958, "+30 % [+0.1, +70]"),
        (0.003, 0.001, 0.5, "+0.3 % [+0.1, +50]"),
        (0.2, 0.006, 0.5, "+20 % [+1, +50]"),
        (0.2, 0.00002, 0.5, "+20 % [0, +50]"),
        (0.02, None, None, "—"),
        (None, None, None, "—"),
    ],
)
def test_a_change_has_its_interval_or_no_number(
    effect: float | None, low: float | None, high: float | None, shown: str
) -> None:
    assert str(format_effect(effect, low, high)) == shown


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_within(0.03), "±3 %"),
        (format_within(0.025), "±2.5 %"),
        (format_roughly(0.0403), "±4.0 %"),
        (format_more_time(31.0), "40 more seconds"),
        (format_more_time(0.5), "10 more seconds"),
        (format_more_time(100.0), "2 more minutes"),
        (format_more_time(331.0), "6 more minutes"),
        (format_more_time(7_000.0), "2 more hours"),
        (format_more_time(3_000.0), "50 more minutes"),
        (format_more_time(200_000.0), "3 more days"),
    ],
)
def test_bounds_and_waits(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (make_verdict(), "commit_delay=1000 slower: TPS -22.5 % [-25.1, -19.7], 41 pairs"),
        (
            make_verdict(VerdictKind.EQUIVALENT, effect_ratio=-0.009, low_ratio=-0.028, high_ratio=0.011),
            "commit_delay=1000 equivalent within ±3 %: TPS -0.9 % [-2.8, +1.1], 41 pairs",
        ),
        (
            make_verdict(VerdictKind.INCONCLUSIVE, n=1, low_ratio=None, high_ratio=None, reason="1 of the 5 pairs"),
            "commit_delay=1000 inconclusive: TPS has no interval yet (1 of the 5 pairs), 1 pair",
        ),
    ],
)
def test_a_verdict_in_a_line(verdict: Verdict, words: str) -> None:
    assert describe_verdict(verdict) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pairs_needed": 120}, "about 6 more minutes of this study would settle it; this budget could have detected ±4.0 %"),
        ({"pairs_needed": None}, "no affordable number of such pairs would settle it; this budget could have detected ±4.0 %"),
        ({"pairs_needed": None, "reason": "the effect changed meanwhile"}, "the effect changed meanwhile; this budget could have detected ±4.0 %"),
        ({"pairs_needed": 7, "low_ratio": None, "high_ratio": None, "detectable_ratio": None}, "about 30 more seconds of this study would settle it"),
        ({"pairs_needed": None, "low_ratio": None, "high_ratio": None, "detectable_ratio": None}, "how much more time it would take is not known yet"),
    ],
)  # fmt: skip
def test_what_is_inconclusive_says_what_it_would_take(changes: dict[str, object], words: str) -> None:
    assert describe_outlook(make_verdict(VerdictKind.INCONCLUSIVE, **changes), round_s=2.9) == words


def _sentences(report: ReportInput) -> dict[tuple[str, str], str]:
    return {(of.workload, one.variant.name): one.sentence for of in answer_study(report) for one in of.answers}


def test_each_variant_and_workload_gets_one_sentence() -> None:
    said = _sentences(build_switchback())
    assert len(said) == 8
    slower = said["tpcb-like", "commit_delay=1000"]
    assert re.fullmatch(
        r"commit_delay=1000 is slower than stock on tpcb-like: TPS -\d+\.\d % \[-\d+\.\d, -\d+\.\d\], 24 pairs of slices, 69.6 s\.", slower
    )  # fmt: skip
    assert "equivalent within ±3 % on select-only" in said["select-only", "commit_delay=1000"]
    assert "is inconclusive" in said["tpcb-like", "commit_delay=50"]
    assert (
        "more minutes of this study would settle it; this budget could have detected ±"
        in said["tpcb-like", "commit_delay=50"]
    )


def test_a_durable_and_another_variant_are_never_compared_without_a_word() -> None:
    report = build_switchback()
    for (_, variant), sentence in _sentences(report).items():
        is_lossy = variant == "asynchronous"
        assert ("Unequal comparison: of the two, only stock is durable." in sentence) is is_lossy
        assert ("asynchronous (gives up durability)" in sentence) is is_lossy
    assert find_durability_given_up(report) == ()
    (told,) = (finding for finding in report.findings if "keep what was committed" in finding.claim)
    assert told.evidence.startswith("asynchronous, by synchronous_commit = off: gives up durability: a crash loses")


def test_a_variant_without_barriers_gives_up_durability() -> None:
    report = build_paired()
    experiment = report.record.plan.experiment
    assert experiment is not None
    first, second = experiment.variants
    lossy = msgspec.structs.replace(second, sysctl={"mount:/var/lib/pgdyno:barrier": "off"})
    plan = msgspec.structs.replace(
        report.record.plan, experiment=msgspec.structs.replace(experiment, variants=(first, lossy))
    )
    report = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, plan=plan))
    (sentence,) = _sentences(report).values()
    assert sentence.startswith(f"{second.name} (gives up durability) against")
    assert f"Unequal comparison: of the two, only {first.name} is durable." in sentence
    assert find_durability_given_up(report) == ()
    (told,) = (one for one in find_doubts(report.record, report.analysis) if "keep what was committed" in one.claim)
    assert "by barrier of the file system of the data = off: gives up durability: a power failure" in told.evidence


def test_variants_that_all_give_it_up_are_alike_and_the_study_says_so() -> None:
    report = build_paired(is_hard=True)
    (sentence,) = _sentences(report).values()
    assert sentence.count("(gives up durability)") == 2
    assert "Not like with like" not in sentence
    assert find_durability_given_up(report) == ("synchronous_commit = off",)


def test_a_variant_that_does_not_start_is_told_with_the_servers_words() -> None:
    report = build_switchback()
    (answers, _) = answer_study(report)
    said = _sentences(report)["tpcb-like", "wal_sync_method=open_datasync"]
    assert said.endswith("on tpcb-like has no verdict: the server does not start.")
    notes = (*verdict_table(answers).notes, *variants_table(answers.variants).notes)  # type: ignore[union-attr]
    assert sum("Available values: fsync, <fdatasync>." in note for note in notes) == 2


def test_a_percentile_of_too_few_transactions_is_not_called_unmeasured() -> None:
    (answers, _) = answer_study(build_switchback())
    figures = tuple(
        msgspec.structs.replace(one, estimates={name: of for name, of in one.estimates.items() if "p99" not in name})
        for one in answers.comparison.figures
    )
    comparison = msgspec.structs.replace(answers.comparison, figures=figures)
    notes = verdict_table(msgspec.structs.replace(answers, comparison=comparison)).rows[0][5].note
    assert notes == "too few of its trials or slices have enough transactions for it"


def test_settings_that_outnumber_the_variants_have_rows_of_their_own() -> None:
    (answers, _) = answer_study(build_switchback())
    *_, asynchronous, refused = answers.variants.values()
    # The value has a sign of equality of its own.
    values = {**asynchronous.values, "search_path": "'a = b'", "work_mem": "16MB"}
    many = msgspec.structs.replace(asynchronous, values=values, below="xfs on vdb")
    table = variants_table({"many": many, "refused": refused})
    assert table is not None
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert [column.title for column in table.columns] == ["", many.name, refused.name]
    assert shown["Part"] == ["compared with the reference", "dropped out: the server does not start"]
    assert shown["Gives up"][0].startswith("gives up durability")
    assert shown["Disks"] == ["xfs on vdb", "—"]
    assert (shown["search_path"], shown["wal_sync_method"]) == (["'a = b'", "—"], ["—", "open_datasync"])
    assert len(table.notes) == 1


@pytest.mark.parametrize(
    "build",
    [build_switchback, build_paired, functools.partial(build_paired, is_hard=True), build_product, build_client_sweep],
)
def test_no_percentage_stands_bare_and_nothing_is_called_the_same(build: Callable[[], ReportInput]) -> None:
    report = build()
    # Of widths and bounds the sign says so; findings and trials tell of the machine, not of variants.
    text = print_markdown(build_report_document(msgspec.structs.replace(report, findings=()))).split("## Trials")[0]
    for found in re.finditer(r"(?<![±\d.,])[-+]?\d[\d.,]* %(?P<after>\W*\[)?", text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.end() + 20]
        assert found["after"] or "% intervals" in line or "of the highest" in line, line
    assert not re.search(r"\bno difference\b|\bthe same speed\b|\bidentical to\b", text)


@pytest.mark.parametrize(
    ("kind", "metric", "words"),
    [
        (VerdictKind.MORE, "wal_bytes", "b causes more WAL than a on tpcb-like"),
        (VerdictKind.LESS, "wal_bytes", "b causes less WAL than a on tpcb-like"),
        (VerdictKind.LESS, "blks_read_pages", "b causes fewer pages read than a on tpcb-like"),
        (VerdictKind.LESS, "device_flush_count", "b causes fewer disk flushes than a on tpcb-like"),
        (VerdictKind.SLOWER, "tps", "b is slower than a on tpcb-like"),
    ],
)
def test_a_verdict_on_a_count_names_what_is_counted(kind: VerdictKind, metric: str, words: str) -> None:
    verdict = make_verdict(kind, metric=metric)
    assert state_verdict(verdict, variant="b", reference="a", workload="tpcb-like") == words


def test_noise_that_is_told_apart_is_an_alarm_in_every_form() -> None:
    report = build_paired(is_hard=True)
    (answers,) = answer_study(report)
    assert any("do not trust this study's other verdicts" in words for words in describe_noise(answers))
    assert [finding.severity.value for finding in report.findings if "told apart" in finding.claim] == ["critical"]
    (calm,) = answer_study(build_paired())
    assert describe_noise(calm)[1].startswith("No difference was found, as expected")


def test_rounds_that_were_added_are_told_with_what_decided_how_many() -> None:
    report = build_paired()
    assert "followed before their final look" not in " ".join(describe_method(report))
    plan = msgspec.structs.replace(report.record.plan, first_extra=report.record.plan.trials[-1].number)
    record = msgspec.structs.replace(report.record, plan=plan)
    words = " ".join(describe_method(msgspec.structs.replace(report, record=record)))
    assert (
        "1 more round followed before their final look. No result of a question decided its own number of rounds;"
        in words
    )


def test_the_method_names_design_slices_and_error_rate() -> None:
    words = " ".join(describe_method(build_switchback()))
    for expected in (
        "under one continuous load",
        "0.5 s on tpcb-like, of which the first 50 ms are ignored (the pilot: a minute of them shows about ±2.9 %",
        "of 100 such verdicts on identical variants at most 5 would be false",
        "all 8 questions",
    ):
        assert expected in words
    assert "takes a restart" in " ".join(describe_method(build_paired()))
    words = " ".join(describe_method(build_client_sweep()))
    for expected in (
        "Turns on one server: each round begins from the same restored data",
        "Before the rounds each variant ran alone",
        "The length of a turn is 2 s to 2.5 s on tpcb-like, of which the first 0.500 s to 0.625 s (connecting, and",
    ):
        assert expected in words
    assert "frozen" not in words
    assert describe_method(build_report()) == ()


def test_a_product_of_two_axes_is_a_matrix_with_every_level() -> None:
    report = build_product()
    (answers,) = answer_study(report)
    table = matrix_table(answers, report.record.plan.experiment)  # type: ignore[arg-type]
    assert table is not None
    assert [column.title for column in table.columns[1:]] == ["on", "off"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["0", "reference", "▲ faster"],
        ["50", "? inconclusive", "▲ faster"],
        ["1000", "▼ slower", "▲ faster"],
    ]
    assert all(row[2].tag == "gives up durability" and row[2].detail for row in table.rows)
    assert matrix_table(answer_study(build_paired())[0], build_paired().record.plan.experiment) is None  # type: ignore[arg-type]


def test_a_sweep_over_clients_answers_with_its_curve() -> None:
    (answers,) = answer_study(build_client_sweep())
    peak, knee, stands, _ = answers.curve
    assert re.fullmatch(
        r"By the fitted curve, TPS is highest at \d+\.\d clients \[\d+\.\d – \d+\.\d\];"
        r" measured highest: [\d,]+ TPS at 32 clients\.",
        peak,
    )
    assert re.fullmatch(r"TPS reaches 90 % of the highest at \d+ clients \[\d+ – \d+\]\.", knee)
    assert "64 collapse" in stands


def test_a_peak_of_the_loads_themselves_is_of_no_curve() -> None:
    (sweep,) = build_client_sweep().analysis.sweeps.values()
    peak, knee, _ = describe_curve(msgspec.structs.replace(sweep, points_alone_reason="it fits badly"))
    assert re.fullmatch(r"TPS is highest at [^;]+\]\.", peak)
    assert re.fullmatch(r"TPS reaches 90 % of the highest at \d+ clients \[.*\]\.", knee)


def test_a_peak_without_an_upper_end_is_not_settled() -> None:
    report = build_client_sweep()
    (name,) = report.analysis.sweeps
    sweep = report.analysis.sweeps[name]
    open_ended = {end: msgspec.structs.replace(getattr(sweep, end), low=13.0, high=None) for end in ("peak", "knee")}
    analysis = msgspec.structs.replace(report.analysis, sweeps={name: msgspec.structs.replace(sweep, **open_ended)})
    (answers,) = answer_study(msgspec.structs.replace(report, analysis=analysis))
    peak, knee, *_ = answers.curve
    assert re.fullmatch(
        r"Where TPS is highest is not settled: by the fitted curve at 13 clients or more;"
        r" measured highest: [\d,]+ TPS at 32 clients\.",
        peak,
    ), peak
    assert knee == "Where TPS reaches 90 % of the highest is not settled: at 13 clients or more."


def test_a_knee_that_is_not_past_the_loads_is_not_looked_for_among_more_clients() -> None:
    (sweep,) = build_client_sweep().analysis.sweeps.values()
    knee = msgspec.structs.replace(sweep.knee, high=None, reason="too few rounds")
    assert sweep.points[-1].status is LoadStatus.COLLAPSE
    assert describe_missing_knee(msgspec.structs.replace(sweep, knee=knee), "") == (
        "No knee was found: too few rounds. A longer sweep would tell."
    )


def test_a_curve_that_was_run_once_names_no_peak() -> None:
    (answers,) = answer_study(build_client_sweep(rounds=1, loads=(1, 2, 4)))
    assert all("not known (" in sentence for sentence in answers.curve[:2])
    assert answers.curve[2] == "Status by number of clients: 1, 2, 4 undecided."


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (build_switchback, "against stock, alternating under one load by 8 pgbench clients"),
        (build_paired, "shared_buffers=1GB against shared_buffers=128MB, in interleaved trials of 10 s"),
        (
            build_client_sweep,
            "7 numbers of clients, taking turns on one server (10 s each in a round) by 1 to 64 pgbench clients",
        ),
        (build_product, "5 combinations of commit_delay and synchronous_commit against"),
    ],
)
def test_the_first_sentence_is_true_of_comparisons(build: Callable[[], ReportInput], words: str) -> None:
    assert words in describe_study(build())


def test_every_metric_of_a_comparison_has_a_name() -> None:
    assert set(METRIC_WORDS) <= set(all_metrics())
    assert len(set(METRIC_WORDS.values())) == len(METRIC_WORDS)


def test_variants_on_disks_of_their_own_are_told_apart() -> None:
    record = build_paired().record
    experiment = record.plan.experiment
    assert experiment is not None
    assert record.host is not None
    first, *others = experiment.variants
    apart = msgspec.structs.replace(others[0], wal_home="/mnt/wal", initdb=InitdbChoices(checksums=False))
    experiment = msgspec.structs.replace(experiment, variants=(first, apart, *others[1:]))
    disk = record.host.data_disk
    wal = msgspec.structs.replace(disk, path="/mnt/wal", device="/dev/vdb1", block_device="vdb", filesystem="xfs")
    record = msgspec.structs.replace(
        record,
        plan=msgspec.structs.replace(record.plan, experiment=experiment),
        places=(
            PlaceFacts(place=Place(), data_disk=disk, wal=disk),
            PlaceFacts(place=Place(None, "/mnt/wal"), data_disk=disk, wal=wal),
        ),
    )
    assert [record.find_place((name,)) for name in (first.name, apart.name)] == [0, 1]
    table = places_table(record)
    assert table is not None
    shown = {row[0].text: row[3].text for row in table.rows}
    assert shown[apart.name] is not None
    assert shown[apart.name].startswith("xfs (")  # type: ignore[union-attr] - as asserted
    assert [text for names, text in shown.items() if names != apart.name] == ["with the data"]
    told = describe_variants(record, experiment)[apart.name]
    assert {"wal_home = /mnt/wal", "checksums = off"} <= set(told.sets)
    assert told.below == "xfs on vdb"
    assert "gives up detection: damaged pages go unseen" in [one.label for one in told.given_up]
    assert told.is_durable is describe_variants(record, experiment)[first.name].is_durable


@pytest.mark.parametrize(
    ("whole_loads", "words"),
    [
        (0, "for all 2 questions on a metric together"),
        (1, "for all 2 questions on a metric of parts together, and apart from these for the one of whole loads"),
        (3, "for all 2 questions on a metric of parts together, and apart from these for all 3 of whole loads"),
    ],
)
def test_the_parts_of_loads_are_a_family_of_questions_by_themselves(whole_loads: int, words: str) -> None:
    report = build_split()
    plan = report.record.plan
    whole = tuple(msgspec.structs.replace(plan.workloads[0], name=f"{n}", parts=()) for n in range(whole_loads))
    record = msgspec.structs.replace(
        report.record, plan=msgspec.structs.replace(plan, workloads=(*plan.workloads, *whole))
    )
    told = describe_method(msgspec.structs.replace(report, record=record))
    assert f"The rate holds {words} (Holm's step-down)" in told[-1]


def test_verdicts_by_several_metrics_and_of_parts_add_their_rates() -> None:
    report = build_split()
    (whole,), parts = report.analysis.comparisons, report.analysis.part_comparisons

    def tell(*primaries: str, others: Sequence[str] = ()) -> str:
        compared = tuple(
            msgspec.structs.replace(one, comparison=msgspec.structs.replace(one.comparison, primary=primary))
            for one, primary in zip(parts, primaries, strict=True)
        )
        beside = tuple(msgspec.structs.replace(whole, workload=primary, primary=primary) for primary in others)
        analysis = msgspec.structs.replace(report.analysis, comparisons=(whole, *beside), part_comparisons=compared)
        return describe_method(msgspec.structs.replace(report, analysis=analysis))[-1]

    most = "100 such studies of identical variants at most"
    assert most not in tell("tps", "tps")
    both = tell("tps", "latency_p95_ms")
    assert f"Here TPS and p95 decide, each with this rate: of {most} 10 have a false verdict." in both
    assert f"Of {most} 10 have a false verdict." in tell("tps", "tps", others=["tps"])
    assert f"{most} 15 have a false verdict." in tell("tps", "latency_p95_ms", others=["tps"])


def test_a_load_in_parts_has_the_verdicts_of_its_parts_and_none_of_its_sum() -> None:
    report = build_split()
    (whole,) = answer_study(report)
    assert whole.answers[0].verdict is not None
    assert whole.answers[0].verdict.kind is VerdictKind.INCONCLUSIVE
    shown = print_markdown(build_report_document(report))
    assert "**inconclusive**" not in shown
    assert "? inconclusive" not in shown
    assert re.search(r"▼ slower", shown)
    assert re.search(r"▲ faster", shown)
    assert shown.index(
        "Variants against synchronous_commit=local (gives up durability): part tpcb-like of split"
    ) < shown.index("**All parts together**")
    # What is drawn and listed are the parts' pairs as well.
    sections = [
        block for section in build_comparisons(report) for block in section.blocks if isinstance(block, Section)
    ]
    titles = [section.title for section in sections if section.id.endswith("-q1")]
    assert [title.rpartition(": ")[2] for title in titles] == ["part tpcb-like of split", "part select-only of split"]
    charts = [one.chart for panel in build_verdicts(report) for one in panel.beside if isinstance(one, ChartBlock)]
    assert [chart.title.rpartition(": ")[2] for chart in charts] == [
        "part tpcb-like of split",
        "part select-only of split",
    ]


def test_long_paired_trials_show_when_a_variant_is_faster() -> None:
    """Trials of the reference of a level, and of a variant that is a tenth slower from the tenth second on."""
    report = build_paired()
    (answers,) = answer_study(report)
    trials = []
    for number, variant, one in [
        (number, variant, one)
        for number in (1, 2, 3)
        for variant, copies in ((answers.reference.name, 2), ("shared_buffers=1GB", 1))
        for one in range(copies)
    ]:
        base = 1000.0 + 10 * number + one
        tps = [base * (0.9 if variant != answers.reference.name and second >= 10 else 1.0) for second in range(20)]
        line = Series(
            metric="tps", label="TPS", unit="tps", t_s=tuple(second + 0.5 for second in range(20)), values=tuple(tps)
        )
        template = report.analysis.workloads[0].trials[0]
        planned = msgspec.structs.replace(template.record.planned, round=number, variants=(variant,))
        record = msgspec.structs.replace(template.record, planned=planned)
        trials.append(msgspec.structs.replace(template, record=record, charts={ChartKind.TPS: (line,)}))
    table = courses_table(answers, trials)
    assert table is not None
    assert [cell.text for cell, *_ in table.rows] == ["0 to 5 s", "5 to 10 s", "10 to 15 s", "15 to 20 s"]
    assert [row[-1].text for row in table.rows] == ["-0.05 %", "-0.05 %", "-10.04 %", "-10.04 %"]
    assert courses_table(answers, trials[:3]) is None


@pytest.mark.parametrize("build", [build_client_sweep, build_split, build_switchback])
def test_turns_slices_and_parts_have_no_course(build: Callable[[], ReportInput]) -> None:
    report = build()
    for answers in answer_study(report):
        assert courses_table(answers, report.analysis.list_trials(answers.workload)) is None
