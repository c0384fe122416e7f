"""The page: what it holds, what it escapes, what it may run, how big it is."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import json
import re
from collections.abc import Callable

import pytest

from pgdyno.report.document import Document, Prose
from pgdyno.report.format import format_number
from pgdyno.report.forms.html import print_html
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.sections.workload import choose_points
from pgdyno.report.study import build_report as build_report_document
from tests.report.build import BUILTIN, HOSTILE, build_report
from tests.report.build_comparison import build_client_sweep, build_paired, build_product, build_switchback
from tests.report.build_derived import build_derived
from tests.report.build_explained import build_explained, build_explained_comparison

NAME = 'Umsätze <script>alert("x")</script>'


class _Page(html.parser.HTMLParser):
    """Headings, ids, links, scripts and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self.policy = ""
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._within = tag if tag in {"script", "style"} and given.get("type") != "application/json" else ""
        if self._within:
            getattr(self, f"{tag}s").append("")
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag == "a":
            self.links.append(given["href"] or "")
        elif given.get("href") or given.get("src"):
            self.loads.append(given.get("href") or given.get("src") or "")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within:
            getattr(self, f"{self._within}s")[-1] += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def hard() -> str:
    return print_html(build_report_document(build_report(names=("tpcb-like", NAME), failed=(2,), is_hard=True)))


def test_words_of_others_stay_words(hard: str) -> None:
    page = _Page(hard)
    assert len(page.scripts) == 2
    assert not any("alert(" in script for script in page.scripts[1:])
    for words in (HOSTILE, NAME, "number of <script>moons</script>: 2", "the server stopped during the load"):
        assert words in page.text


def test_only_the_pages_own_scripts_and_style_may_run(hard: str) -> None:
    page = _Page(hard)
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in page.policy
    for source in (*page.scripts, *page.styles):
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in page.policy
    assert page.loads == ["data:,"]


def test_headings_descend_by_one_ids_are_unique_and_links_lead_somewhere(hard: str) -> None:
    page = _Page(hard)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.headings))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_durability_is_labelled_and_absence_has_its_reason(hard: str) -> None:
    text = _Page(hard).text
    assert (
        "Durability given up: fsync = off: a crash of the machine may lose the whole cluster; synchronous_commit = off: a crash"
        in text
    )
    first_page = text.partition("Measurement quality")[0]
    assert (first_page.count("fsync"), first_page.count("should not be used")) == (1, 1)
    for reason in (
        "too few transactions: 7 above it, 10 are needed",
        "the kernel was started without psi=1",
        "no cpufreq in this virtual machine",
        "pg_stat_database was <not> readable",
    ):
        assert reason in text


def test_every_trial_is_reachable_and_its_charts_have_data(hard: str) -> None:
    report = build_report(names=("tpcb-like", NAME), failed=(2,), is_hard=True)
    page = _Page(hard)
    drawings = json.loads(hard.partition('id="drawings">')[2].partition("</script>")[0])
    for number, workload in enumerate(report.analysis.workloads, start=1):
        for trial in workload.trials:
            part = f"w{number}-t{trial.record.planned.number}"
            assert part in page.ids
            charts = [name for name in drawings["charts"] if name.startswith(f"{part}-")]
            assert len(charts) == len(trial.charts)
            assert set(charts) <= set(page.ids)
    assert len(drawings["specs"]) < len(drawings["charts"])


def test_a_large_study_stays_below_five_megabytes_and_says_that_it_is_thinned() -> None:
    report = build_report(names=(*BUILTIN, *(f"extra-{number}" for number in range(7))), duration_s=720)
    page = print_html(build_report_document(report))
    assert choose_points(report) < 720
    assert len(page.encode()) <= 5_000_000
    assert "the record keeps all" in page


def test_a_long_study_of_the_default_shape_is_not_thinned() -> None:
    assert choose_points(build_report(duration_s=60)) >= 60
    assert choose_points(build_report(rounds=1, duration_s=720)) >= 720


def test_the_same_input_gives_the_same_page(hard: str) -> None:
    assert print_html(build_report_document(build_report(names=("tpcb-like", NAME), failed=(2,), is_hard=True))) == hard


@pytest.fixture(scope="module")
def compared() -> dict[str, _Page]:
    reports = {
        "switchback": build_switchback(), "loud": build_paired(is_hard=True), "clients": build_client_sweep(),
        "product": build_product(),
    }  # fmt: skip
    return {name: _Page(print_html(build_report_document(report))) for name, report in reports.items()}


@pytest.mark.parametrize("name", ["switchback", "loud", "clients", "product"])
def test_a_page_of_verdicts_is_whole(compared: dict[str, _Page], name: str) -> None:
    page = compared[name]
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.headings))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.loads == ["data:,"]


@pytest.mark.parametrize("build", [build_explained, build_explained_comparison, build_derived])
def test_every_sentence_of_the_first_page_leads_to_what_shows_it(build: Callable[[], ReportInput]) -> None:
    text = print_html(build_report_document(build()), vega_js="")
    # The sections within it have no ids.
    first_page = re.search(r'<section id="first-page".*?(?=<section id=)', text, re.DOTALL)
    assert first_page
    links = _Page(first_page[0]).links
    assert links
    assert {link.removeprefix("#") for link in links} <= set(_Page(text).ids)


def test_verdicts_come_first_and_are_those_of_the_other_forms(compared: dict[str, _Page]) -> None:
    text = " ".join(compared["switchback"].text.split())
    for answers in answer_study(build_switchback()):
        for answer in answers.answers:
            for words in (answer.lead, answer.change, answer.effort, answer.outlook, answer.caution):
                assert 0 <= text.find(words) < text.index("Comparison method")
    assert text.index("commit_delay=1000 is slower than stock") < text.index("Variants against stock")
    assert "Available values: fsync, <fdatasync>." in text


def test_a_mixture_of_variants_has_no_tps_on_the_page(compared: dict[str, _Page]) -> None:
    report = build_switchback()
    text = compared["switchback"].text
    assert "latencies of a whole trial would be a mixture" in text
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            assert f"{format_number(trial.tps or 0.0)} tps" not in text
    assert "Result over all trials" not in text


def test_what_gives_up_durability_is_labelled_wherever_it_stands(compared: dict[str, _Page]) -> None:
    text = " ".join(compared["product"].text.split())
    for found in re.finditer(r"synchronous_commit=off(?! and)", text.split("Comparison method")[0]):
        assert re.match(r" \(?gives up durability", text[found.end() :]), text[found.start() - 60 : found.end() + 40]


def test_identical_variants_told_apart_are_an_alarm_on_the_page(compared: dict[str, _Page]) -> None:
    assert "Do not trust these verdicts" in compared["loud"].text
    assert HOSTILE in compared["loud"].text
    assert "Do not trust these verdicts" not in compared["switchback"].text


def test_no_line_ends_within_a_duration_or_an_option() -> None:
    words = "41 pairs, 1 min 59 s, in trial 8, n = 2: `pgdyno resume --no-disk`"
    page = print_html(Document(title="Held", blocks=(Prose(words=words),), made_by="pgdyno"), vega_js="/* none */")
    assert "41 pairs, 1_min_59_s, in trial_8, n_=_2:" in page.replace("\N{NO-BREAK SPACE}", "_")
    # Who copies a command gets what it says.
    assert '<code>pgdyno resume <span class="held">--no-disk</span></code>' in page


def test_no_line_ends_within_an_interval_of_a_card_or_a_number_of_a_charts_caption(hard: str) -> None:
    page = hard.replace("\N{NO-BREAK SPACE}", "_")
    assert "Dots are trials, the line is their mean, the bar its 95_% interval." in page
    assert re.search(r"<span>\[[\d,.]+_–\N{WORD JOINER}_[\d,.]+\], n_=_\d", page)


def test_a_study_without_data_still_has_a_page() -> None:
    text = _Page(print_html(build_report_document(build_report(names=("select-only",), rounds=1, is_bare=True)))).text
    assert "No samples exist of this trial" in text
    assert "n = 1: no interval" in text.replace("\N{NO-BREAK SPACE}", " ")
