"""Terminal, Markdown and JSON: golden texts, a published schema, and no number that the others do not have."""

from __future__ import annotations

import functools
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest
from rich.console import Console

import pgdyno.report
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.plan import Choice
from pgdyno.record.types import SettingFact
from pgdyno.report.document import Charts, Claim, Claims, Code, Document, Facts, Prose, Section, name_program
from pgdyno.report.documents.report import SCHEMA_FILE, make_schema, render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.forms.markdown import escape, mark, print_markdown
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.context import dataset_table, key_settings_table, settings_table
from pgdyno.report.sections.findings import FindingText, list_findings
from pgdyno.report.sections.machine import host_table
from pgdyno.report.sections.repeating import list_choices
from pgdyno.report.study import build_report as build_report_document
from pgdyno.report.table import Cell, Table, columns
from tests.report.build import BUILTIN, HOSTILE, build_report
from tests.report.build_comparison import build_client_sweep, build_paired, build_product, build_switchback
from tests.report.build_derived import build_derived, build_layers
from tests.report.build_explained import build_explained, build_explained_comparison
from tests.report.build_scaling import build_bench
from tests.report.build_search import build_search

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "plain": {},
    "hard": {"names": ("tpcb-like", HOSTILE.replace("/", "")), "failed": (2,), "is_hard": True},
    "one-trial": {"names": ("select-only",), "rounds": 1},
    "all-failed": {"names": ("tpcb-like",), "rounds": 1, "failed": (1,)},
    "bare": {"names": ("select-only",), "is_bare": True},
}


REPORTS: dict[str, Callable[[], ReportInput]] = {
    **{name: functools.partial(build_report, **options) for name, options in CASES.items()},
    "switchback": build_switchback,
    "paired": build_paired,
    "loud": functools.partial(build_paired, is_hard=True),
    "clients": build_client_sweep,
    "product": build_product,
    "derived": build_derived,
    "derived-slower": functools.partial(build_derived, is_hard=True),
    "layers": build_layers,
    "bench": build_bench,
    "search": functools.partial(build_search, "settled", "open"),
    "no-rate": functools.partial(build_search, "hopeless"),
    "explained": build_explained,
    "explained-hard": functools.partial(build_explained, is_hard=True),
    "explained-comparison": build_explained_comparison,
}


@pytest.fixture(params=REPORTS)
def case(request: pytest.FixtureRequest) -> tuple[str, ReportInput]:
    return request.param, REPORTS[request.param]()


def _print(report: ReportInput, *, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, no_color=True, legacy_windows=False).print(
        print_terminal(build_report_document(report))
    )
    return out.getvalue()


def test_terminal(case: tuple[str, ReportInput], golden: Callable[[Path, str], None]) -> None:
    name, report = case
    shown = _print(report)
    golden(GOLDEN / f"{name}.txt", shown)
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    "name", ["switchback", "paired", "clients", "product", "derived", "layers", "search", "no-rate"]
)
def test_verdicts_fit_a_narrow_terminal_and_no_interval_is_broken(name: str) -> None:
    for width in (60, 80, 100):
        lines = _print(REPORTS[name](), width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert all(line.count("[") == line.count("]") for line in lines)


@pytest.mark.parametrize("options", [{"width": 80}, {"width": 200}, {"width": 80, "soft_wrap": True}])
def test_no_line_of_the_terminal_is_filled_with_blanks(case: tuple[str, ReportInput], options: dict[str, int]) -> None:
    out = io.StringIO()
    Console(file=out, no_color=True, legacy_windows=False, **options).print(
        print_terminal(build_report_document(case[1]))
    )
    lines = out.getvalue().splitlines()
    assert lines == [line.rstrip() for line in lines]


def _retell(*findings: Finding) -> tuple[FindingText, ...]:
    return list_findings(msgspec.structs.replace(build_report(), findings=findings))


def test_a_claim_that_workloads_share_is_made_once_at_its_worst() -> None:
    note = Finding(severity=Severity.NOTE, claim="It waits.", evidence="2 %", advice="Look.", workload="a")
    worse = msgspec.structs.replace(note, severity=Severity.WARNING, evidence="9 %", workload="b")
    other = msgspec.structs.replace(note, claim="It runs.", severity=Severity.NOTE)
    first, second = _retell(other, note, worse, msgspec.structs.replace(note, workload="c"))
    assert (first.severity, first.claim, first.workloads) == (Severity.WARNING, "It waits.", ("b", "a", "c"))
    assert first.lead == ("b: 9 %", "a, c: 2 %")
    assert (second.claim, second.lead) == ("It runs.", ("2 %",))


def test_what_is_alike_in_the_evidence_of_several_loads_is_said_once() -> None:
    alike = "backends on a CPU or waiting for one, as the kernel counts them, and pgbench's threads that wait for one"
    seen = f"{{}} % of the clients' time: {alike}; 90 looks at backends; {{}} ms in each; of the network nothing"
    findings = [
        Finding(
            severity=Severity.NOTE,
            claim="It waits.",
            evidence=seen.format(share, share / 10),
            advice="",
            workload=f"w{share}",
        )
        for share in range(61, 69)
    ]
    (told,) = _retell(*findings)
    assert told.lead == (
        *(f"w{share}: {share} % of the clients' time" for share in range(61, 65)),
        f"each: {alike}",
        "4 more like these are in report.json",
    )
    assert told.rest == (
        "each: 90 looks at backends; of the network nothing",
        *(f"w{share}: {share / 10} ms in each" for share in range(61, 65)),
    )
    short = msgspec.structs.replace(findings[0], evidence="61 % of the clients' time", why="It queues.")
    (told,) = _retell(short, *findings[1:3])
    assert told.lead[0] == "w61: 61 % of the clients' time"
    assert told.rest == tuple(
        f"w{share}: 90 looks at backends; {share / 10} ms in each; of the network nothing" for share in (62, 63)
    )
    assert told.why == ("w61: It queues.",)
    (told,) = _retell(*(msgspec.structs.replace(one, why="It queues.") for one in findings[:2]))
    assert told.why == ("It queues.",)
    (told,) = _retell(findings[0])
    assert told.rest == ("90 looks at backends; 6.1 ms in each; of the network nothing",)


def test_code_in_our_own_sentences_stays_code_wherever_it_stands() -> None:
    said = "see `pgdyno explain` | now"
    claim = Claim(
        badge="note",
        hue="note",
        claim=said,
        figures=said,
        evidence=(said, said),
        detail=(said,),
        advice=said,
        settle=said,
    )
    rows = ((Cell(text="`a`", detail="`pgdyno explain`", note=said),),)
    blocks = (
        Prose(words=said, strong=said),
        Claims(claims=(claim,)),
        Facts(title="x", words=said, facts=(), remarks=(said,)),
        Table(caption="x", columns=columns("x"), rows=rows, remark=said),
        Code(purpose=said, lines="ls"),
    )
    document = Document(title="x", blocks=(Section(title="x", sub=said, blocks=blocks),))
    shown = print_markdown(document)
    assert "\\`" not in shown
    assert shown.count("`pgdyno explain`") == shown.count("pgdyno explain") >= 14
    page = print_html(document).partition("<body")[2].partition("<script")[0]
    assert "`" not in page
    assert page.count("<code>pgdyno explain</code>") == page.count("pgdyno explain") >= 13


def test_of_what_many_share_only_the_first_are_named() -> None:
    findings = [
        Finding(severity=Severity.NOTE, claim="It waits.", evidence=f"{place} %", advice="Look.", workload=f"w{place}")
        for place in range(9)
    ]
    (told,) = _retell(*findings)
    assert told.workloads == ("w0", "w1", "w2", "6 others")
    assert told.lead[3:] == ("w3: 3 %", "5 more like these are in report.json")


def test_choices_made_alike_are_one() -> None:
    report = build_report()
    alike = [Choice(name=f"clients of {name}", value="8", reason="4 for each CPU") for name in ("a", "b")]
    choices = (
        *alike,
        Choice(name="clients of c", value="1", reason="asked"),
        Choice(name="scale", value="5", reason="x"),
    )
    plan = msgspec.structs.replace(report.record.plan, choices=choices)
    changed = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, plan=plan))
    assert [(one.name, one.value) for one in list_choices(changed)] == [
        ("clients (a, b)", "8"), ("clients (c)", "1"), ("scale", "5"),
    ]  # fmt: skip


def test_key_settings_are_shown_whether_or_not_anybody_set_them() -> None:
    rows = {row[0].text: row for row in key_settings_table(build_report()).rows}
    assert (rows["shared_buffers"][1].text, rows["shared_buffers"][1].is_strong) == ("4GB", True)
    assert (rows["checkpoint_timeout"][1].text, rows["checkpoint_timeout"][1].is_strong) == ("5min", False)
    unknown = {row[1].text for row in key_settings_table(build_report(is_bare=True)).rows}
    assert unknown == {"—"}


def test_tables_of_what_variants_differ_in_say_whose_it_is() -> None:
    switched, paired = build_switchback(), build_paired()
    for report, words in (
        (switched, "Read when the load began; each slice of it then had the settings of its variant."),
        (paired, ""),
    ):
        changed = settings_table(report)
        assert changed is not None
        assert key_settings_table(report).remark == changed.remark == words
    plan = paired.record.plan
    assert plan.experiment is not None
    reference, *others = plan.experiment.variants
    scaled = tuple(msgspec.structs.replace(one, scale=1000) for one in others)
    experiment = msgspec.structs.replace(plan.experiment, variants=(reference, *scaled))
    record = msgspec.structs.replace(paired.record, plan=msgspec.structs.replace(plan, experiment=experiment))
    assert record.dataset is not None
    assert dataset_table(paired, record.dataset).remark == ""
    assert dataset_table(msgspec.structs.replace(paired, record=record), record.dataset).remark == (
        f"The data of {reference.name}; variants of another scale have data of their own."
    )


@pytest.mark.parametrize(
    ("device", "block", "is_rotational", "shown"),
    [
        ("/dev/vda", "vda", True, "/dev/vda"), ("/dev/sda1", "sda", True, "/dev/sda1, on sda, rotating"),
        ("/dev/sda", "sda", False, "/dev/sda, solid state"), ("overlay", None, None, "overlay"),
    ],
)  # fmt: skip
def test_a_disk_is_named_once_and_a_virtual_one_has_no_kind(
    device: str, block: str | None, is_rotational: bool | None, shown: str
) -> None:
    report = build_report()
    host = report.record.host
    disk = msgspec.structs.replace(host.data_disk, device=device, block_device=block, is_rotational=is_rotational)
    host = msgspec.structs.replace(host, data_disk=disk, virtualization=None)
    changed = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, host=host))
    assert {row[0].text: row[1].text for row in host_table(changed.record.host).rows}["Disk"] == shown


def test_ten_workloads_fit_a_terminal() -> None:
    shown = _print(build_report(names=(*BUILTIN, *(f"workload-of-some-length-{number}" for number in range(7)))))
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_markdown(case: tuple[str, ReportInput], golden: Callable[[Path, str], None]) -> None:
    name, report = case
    golden(GOLDEN / f"{name}.md", print_markdown(build_report_document(report)))


def test_markdown_tables_are_whole(case: tuple[str, ReportInput]) -> None:
    rows = [line for line in print_markdown(build_report_document(case[1])).splitlines() if line.startswith("|")]
    assert rows
    for line, following in itertools.pairwise(rows):
        if set(following) <= set("|-:"):
            assert len(re.findall(r"(?<!\\)\|", line)) == following.count("|")


def test_markdown_takes_no_markup_from_others() -> None:
    text = print_markdown(build_report_document(build_report(**CASES["hard"])))
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<", outside)
    assert (
        escape("a|b *c* `d` _e_ f_g [h](i) &amp; & [1 – 2]") == r"a\|b \*c\* \`d\` \_e\_ f_g [h\](i) \&amp; & [1 – 2]"
    )


def test_markdown_keeps_what_is_to_be_typed_as_code() -> None:
    said = mark("*now*  `./pgdyno sweep 'latency<20ms@p99' a_*`: <b> and a lone ` too, ``x``")
    assert said == r"\*now\* `./pgdyno sweep 'latency<20ms@p99' a_*`: \<b> and a lone \` too, \`\`x\`\`"
    assert mark("one ` here") == r"one \` here"


def test_json_follows_its_schema(case: tuple[str, ReportInput]) -> None:
    document = json.loads(render_json(case[1]))
    jsonschema.Draft202012Validator(make_schema()).validate(document)
    assert (document["format"], document["version"]) == ("pgdyno-report", 1)


def test_json_keeps_full_precision_and_says_why_something_is_absent() -> None:
    report = build_report(**CASES["hard"])
    document = json.loads(render_json(report))
    assert document["workloads"][0]["tps"]["value"] == report.analysis.workloads[0].tps.value
    trial = document["workloads"][0]["trials"][0]
    assert next(p for p in trial["percentiles"] if p["name"] == "p99.9") == {
        "name": "p99.9", "value_ms": None, "reason": "too few transactions: 7 above it, 10 are needed"
    }  # fmt: skip
    assert trial["counts_per_transaction"]["blks_read_pages"] is None
    assert document["durability_given_up"] == ["fsync = off", "synchronous_commit = off"]


def test_json_has_every_pair_and_the_price_of_each_figure(golden: Callable[[Path, str], None]) -> None:
    report = build_paired()
    document = json.loads(render_json(report))["experiment"]
    golden(GOLDEN / "paired.json", json.dumps(_shorten(document), indent=1) + "\n")
    (question,) = (one for one in report.analysis.comparisons[0].questions if one.metric == "tps")
    told = next(one for one in document["comparisons"][0]["questions"] if one["metric"] == "tps")
    assert told["log_ratios"] == list(question.log_ratios)
    assert told["verdict"]["low_ratio"] == question.verdict.low_ratio
    switched = json.loads(render_json(build_switchback()))
    lossy = [one for one in switched["experiment"]["comparisons"][0]["questions"] if one["arm"] == "asynchronous"]
    assert lossy
    assert {(one["is_arm_durable"], one["is_reference_durable"]) for one in lossy} == {(False, True)}


def test_json_has_the_bounds_of_pairs_whose_trials_failed() -> None:
    report = build_paired()
    (comparison,) = report.analysis.comparisons
    bounded = [
        msgspec.structs.replace(one, extremes=(one.log_ratios, tuple(ratio + 0.5 for ratio in one.log_ratios)))
        for one in comparison.questions
    ]
    comparison = msgspec.structs.replace(comparison, questions=tuple(bounded))
    analysis = msgspec.structs.replace(report.analysis, comparisons=(comparison,))
    document = json.loads(render_json(msgspec.structs.replace(report, analysis=analysis)))
    told = document["experiment"]["comparisons"][0]
    assert [one["bounded_log_ratios"] for one in told["questions"]] == [
        list(map(list, one.extremes)) for one in bounded
    ]
    assert all(one["bounded_log_ratios"] == [] for one in told["noise"])


def test_a_mixture_of_variants_is_nobodys_result() -> None:
    report = build_switchback()
    document = json.loads(render_json(report))
    for workload in document["workloads"]:
        assert workload["tps"]["value"] is None
        assert workload["tps"]["reason"] == "variants alternate in each trial"
        assert {one["value"] for one in workload["latency_ms"].values()} == {None}
    text = print_markdown(build_report_document(report))
    assert "**Result over all trials**" not in text
    assert "latencies of a whole trial would be a mixture" in text


def _shorten(value: object) -> object:
    """Floats with nine digits: the last ones differ between processors."""
    if isinstance(value, dict):
        return {name: _shorten(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_shorten(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_the_mode_of_a_file_and_its_default_are_in_one_notation() -> None:
    trial = build_report().analysis.workloads[0].trials[0].record
    modes = (("log_file_mode", "0600", "384"), ("unix_socket_permissions", "0770", "511"))
    facts = tuple(SettingFact(name=n, value=v, unit=None, boot_value=b, source="default") for n, v, b in modes)
    trial = msgspec.structs.replace(trial, settings=facts)
    assert [(one.value, one.boot_value) for one in trial.changed_settings] == [("0770", "0777")]


def test_the_schema_refuses_a_wrong_document() -> None:
    document = json.loads(render_json(build_report()))
    document["workloads"][0]["tps"]["value"] = "fast"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(make_schema()).validate(document)


def test_the_published_schema_is_the_one_in_use(golden: Callable[[Path, str], None]) -> None:
    schema = make_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    golden(Path(pgdyno.report.__file__).parent / SCHEMA_FILE, json.dumps(schema, indent=1) + "\n")


def test_two_values_of_a_setting_are_two_however_close() -> None:
    report = build_report(names=("tpcb-like",), rounds=2)
    (workload,) = report.analysis.workloads
    fact = SettingFact(name="shared_buffers", value="", unit="8kB", boot_value="16384", source="configuration file")
    trials = tuple(
        msgspec.structs.replace(
            trial,
            record=msgspec.structs.replace(trial.record, settings=(msgspec.structs.replace(fact, value=pages),)),
        )
        for trial, pages in zip(workload.trials, ("157952", "158400"), strict=True)
    )
    analysis = msgspec.structs.replace(report.analysis, workloads=(msgspec.structs.replace(workload, trials=trials),))
    report = msgspec.structs.replace(report, analysis=analysis)
    row = next(row for row in key_settings_table(report).rows if row[0].text == "shared_buffers")
    assert row[1].text == "1234MB (trial 1); 1267200kB (trial 2)"
    changed = settings_table(report)
    assert changed is not None
    assert [row[1].text for row in changed.rows] == ["1234MB", "1267200kB"]
    dataset = report.record.dataset
    assert dataset is not None
    ten_times = msgspec.structs.replace(dataset, total_bytes=12340 * 1024**2)
    relative = next(row for row in dataset_table(report, ten_times).rows if "shared_buffers" in row[0].text)
    assert relative[1].text == "10.0 × 1234MB; 9.97 × 1267200kB"


def test_a_setting_that_differs_between_trials_names_them() -> None:
    text = print_markdown(build_report_document(build_report(names=("tpcb-like",), failed=(2,), is_hard=True)))
    assert "durability given up" in text
    assert "only" not in text.split("## Settings")[1].split("**Chosen")[0]


def test_commands_of_a_document_name_the_program_as_it_was_called() -> None:
    lines = (
        "`pgdyno bench`",
        "`sudo pgdyno tune`",
        "`pgdyno check && pgdyno bench`",
        "`/opt/pgdyno resume x`",
        "pgdyno is",
    )
    blocks = (
        Section(title="Next", blocks=(*(Prose(words=line) for line in lines), Charts(draw=lambda: (), keys=()))),
        Claims(claims=(Claim(badge="note", hue="note", claim="Claim.", rivals=("`pgdyno disk` measures it",)),)),
    )
    document = Document(title="pgdyno", blocks=blocks)
    text = print_markdown(name_program(document, "./pgdyno", recorded="/opt/pgdyno"))
    for line in (
        "`./pgdyno bench`",
        "`sudo ./pgdyno tune`",
        "`./pgdyno check && ./pgdyno bench`",
        "`./pgdyno resume x`",
    ):
        assert line in text
    assert "pgdyno is" in text
    assert "`./pgdyno disk` measures it" in text
    assert "`pgdyno" not in text
