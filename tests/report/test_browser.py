"""The page in a real browser: drawn, quiet, narrow, dark, printed, and asking nobody for anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.records.comparison import compare_records
from pgdyno.explain.finding import Rival
from pgdyno.report.charts.intervals import intervals_chart
from pgdyno.report.document import ChartBlock, Document, Prose
from pgdyno.report.forms.html import print_html
from pgdyno.report.input import ReportInput
from pgdyno.report.records import build_records
from pgdyno.report.sections.records.pairs import NamedRecord
from pgdyno.report.study import build_report as build_report_document
from tests.analyse.test_records_gate import change_load, changed
from tests.report.browser import CHROMIUM, Browser
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_paired, build_product, build_switchback
from tests.report.build_derived import build_derived
from tests.report.build_explained import build_explained, build_explained_comparison

_DRAWN = {
    "plain": 48,
    "hard": 30,
    "bare": 0,
    "switchback": 4,
    "loud": 4,
    "clients": 2,
    "product": 2,
    "explained": 48,
    "explained-comparison": 4,
}
_OPENED = {"switchback": 31, "records": 1}
"""The least number of charts once everything is open, where the console is asked for complaints as well."""
DRAWN = "[...document.querySelectorAll('figure.chart')].filter(f => !f.closest('details:not([open])')).map(f => f.querySelectorAll('svg').length)"
LEFT_OF_PAGE = """[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width > 0 && box.right > innerWidth + 1 && !e.closest('.scroll') && !e.closest('svg') && !e.closest('.unseen');
}).map(e => e.outerHTML.slice(0, 80))"""


ENDLESS = f"/srv/{'postgresql_18_' * 8}data"
ENDLESS_NAME = f"db-{'0123456789' * 6}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI may not skip the browser: no chromium is installed")
        pytest.skip("no chromium is installed")
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    reports = {
        "plain": build_report(),
        "short": build_report(names=("tpcb-like",), rounds=2),
        "hard": build_report(names=("tpcb-like", '<script>alert("x")</script> Grüße'), failed=(2,), is_hard=True),
        "bare": build_report(names=("select-only",), rounds=1, is_bare=True),
        "switchback": build_switchback(),
        "loud": build_paired(is_hard=True),
        "clients": build_client_sweep(),
        "wide": _make_wide(),
        "product": build_product(),
        "derived": build_derived(),
        "explained": build_explained(is_hard=True),
        "explained-comparison": build_explained_comparison(),
        "endless": _make_endless(),
    }
    texts = {name: print_html(build_report_document(report)) for name, report in reports.items()}
    side = changed(study=lambda record: record["host"].update(host_name=ENDLESS_NAME))
    sides = [[side], [side], [changed(study=change_load(clients=9), side=side)]]
    named = [NamedRecord(path=f"{ENDLESS}/{name}", record=side.record) for name in "abc"]
    texts["records"] = print_html(build_records(named, compare_records(sides)))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def _make_wide() -> ReportInput:
    """A sweep over clients on a machine so busy that all of its intervals are too wide."""

    def widen(estimate: Estimate) -> Estimate:
        value = 100.0 * (estimate.value or 0.0)
        return msgspec.structs.replace(estimate, value=value, low=value / 4, high=value * 4)

    report = build_client_sweep()
    ((name, sweep),) = report.analysis.sweeps.items()
    points = tuple(
        msgspec.structs.replace(one, tps=widen(one.tps), efficiency=widen(one.efficiency)) for one in sweep.points
    )
    (comparison,) = report.analysis.comparisons
    figures = tuple(
        msgspec.structs.replace(one, estimates={metric: widen(of) for metric, of in one.estimates.items()})
        for one in comparison.figures
    )
    analysis = msgspec.structs.replace(
        report.analysis,
        sweeps={name: msgspec.structs.replace(sweep, points=points)},
        comparisons=(msgspec.structs.replace(comparison, figures=figures),),
    )
    return msgspec.structs.replace(report, analysis=analysis)


def _make_endless() -> ReportInput:
    """A report with words that offer no place to break them wherever a path or a name may stand."""
    report = build_explained(is_hard=True)
    record = msgspec.structs.replace(
        report.record, host=msgspec.structs.replace(report.record.host, host_name=ENDLESS_NAME)
    )
    rivals = (Rival(cause=f"{ENDLESS} is full", against=ENDLESS),)
    told = {
        "evidence": f"reads from {ENDLESS}",
        "advice": f"`ls {ENDLESS}`",
        "why": ENDLESS,
        "confirm": f"`du {ENDLESS}`",
    }
    return msgspec.structs.replace(
        report,
        record=record,
        record_dir=ENDLESS,
        findings=tuple(msgspec.structs.replace(one, rivals=rivals, **told) for one in report.findings),
        explanations=tuple(
            msgspec.structs.replace(one, rivals=rivals, gain=ENDLESS, **told) for one in report.explanations
        ),
    )


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("plain", ((375, "dark"), (1280, "light"))),
        ("hard", ((375, "light"), (768, "dark"))),
        ("bare", ((375, "light"),)),
        ("switchback", ((375, "light"), (1280, "dark"))),
        ("loud", ((375, "dark"),)),
        ("clients", ((375, "light"),)),
        ("product", ((375, "dark"),)),
        ("explained", ((375, "dark"), (1280, "light"))),
        ("explained-comparison", ((375, "light"),)),
    ],
)
def test_drawn_quiet_and_within_its_width(
    browser: Browser, pages: dict[str, Path], name: str, views: tuple[tuple[int, str], ...]
) -> None:
    width, scheme = views[0]
    browser.open(pages[name], width=width, scheme=scheme)
    for width, scheme in views:
        browser.view(width=width, scheme=scheme)
        drawn = browser.evaluate(DRAWN)
        assert set(drawn) <= {1}
        assert len(drawn) == _DRAWN[name]
        # Charts follow a new width a moment later.
        browser.wait_for("document.documentElement.scrollWidth", lambda seen, width=width: seen <= width)
        browser.wait_for(LEFT_OF_PAGE, lambda left: left == [])
    assert browser.complaints == []
    assert browser.requests == [pages[name].as_uri()]


@pytest.mark.parametrize("told", ["8 [6,800 – 10,500]", "8 (6,800 – 10,500: too wide)"])
def test_no_line_ends_within_an_interval(browser: Browser, tmp_path: Path, told: str) -> None:
    page = tmp_path / "page.html"
    words = Document(title="Interval", blocks=(Prose(words=told),), made_by="pgdyno")
    page.write_text(print_html(words), encoding="utf-8")
    browser.open(page)
    tops = """(() => {
      const interval = document.createRange(), text = document.querySelector("main p").firstChild;
      interval.setStart(text, 2);
      interval.setEnd(text, text.data.indexOf("500") + 3);
      document.querySelector("main p").style.width = `${interval.getBoundingClientRect().width + 4}px`;
      return [...interval.getClientRects()].map((one) => one.top);
    })()"""
    assert len(set(browser.evaluate(tops))) == 1


def test_the_figures_of_an_interval_that_leaves_its_chart_stand_whole_above_the_axis(
    browser: Browser, tmp_path: Path
) -> None:
    report = build_switchback()
    (verdict, *_) = (one.verdict for one in report.analysis.comparisons[0].questions if not one.verdict.is_decided)
    wide = msgspec.structs.replace(verdict, effect_ratio=0.0, low_ratio=-0.99, high_ratio=1234.0)
    chart = intervals_chart([wide], titles={wide.variant: "wide"}, reference="stock")
    assert chart is not None
    page = tmp_path / "page.html"
    block = ChartBlock(id="wide", chart=chart)
    page.write_text(print_html(Document(title="Wide", blocks=(block,), made_by="pgdyno")), encoding="utf-8")
    browser.open(page, width=390)
    assert browser.evaluate("document.querySelectorAll('.mark-symbol path').length") == 2
    figures = browser.evaluate(
        "[...document.querySelectorAll('.role-mark text')].map(one => [one.textContent, one.getBoundingClientRect().toJSON()])"
    )
    axis = browser.evaluate("document.querySelector('.role-axis-domain line').getBoundingClientRect().top")
    boxes = {words: box for words, box in figures if words.endswith("%")}
    assert list(boxes) == ["-99 %", "+123,000 %"]
    assert all(box["left"] >= 0 and box["right"] <= 390 and box["bottom"] <= axis + 3 for box in boxes.values()), boxes


def test_changes_have_one_sign_in_words_and_on_axes(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["switchback"])
    labels = browser.evaluate("[...document.querySelectorAll('svg text')].map(one => one.textContent)")
    below_zero = [label for label in labels if label.endswith("%") and label[0] in "-\N{MINUS SIGN}"]
    assert below_zero
    assert not [label for label in below_zero if label.startswith("\N{MINUS SIGN}")]


def test_no_table_of_a_curve_is_cut_on_a_desk_however_wide_its_intervals(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["wide"], width=1300)
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    assert browser.evaluate(cut) == []


@pytest.mark.parametrize("name", ["endless", "derived", "explained-comparison", "switchback", "records"])
def test_a_phone_keeps_its_width_with_everything_open(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=420)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 420
    assert browser.evaluate(LEFT_OF_PAGE) == []
    # A name of several words makes no tall row.
    widths = browser.evaluate("[...document.querySelectorAll('.named')].map(one => one.offsetWidth).filter(Boolean)")
    assert all(width >= 140 for width in widths), widths
    # A table is moved in its box: nobody reads one whose words are broken into letters.
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)")
    if (least := _OPENED.get(name)) is not None:
        browser.wait_for(DRAWN, lambda drawn: len(drawn) >= least and set(drawn) == {1})
        assert browser.complaints == []


def test_a_chart_in_a_closed_part_opens_for_who_follows_a_link_to_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["explained-comparison"])
    figure = "document.getElementById(document.querySelector('#first-page .places a').hash.slice(1))"
    assert browser.evaluate(f"{figure}.querySelectorAll('svg').length") == 0
    browser.evaluate("document.querySelector('#first-page .places a').click()")
    browser.wait_for(f"{figure}.querySelectorAll('svg').length", lambda count: count == 1)
    browser.wait_for(f"{figure}.getBoundingClientRect().top", lambda top: 0 <= top < 900)


def test_the_dark_reaches_page_and_charts(browser: Browser, pages: dict[str, Path]) -> None:
    seen = {}
    browser.open(pages["short"])
    for scheme in ("light", "dark"):
        browser.view(scheme=scheme)
        seen[scheme] = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('.mark-line path')).stroke,"
            " getComputedStyle(document.querySelector('.role-axis-label text')).fill]"
        )
    assert seen["light"][0] == "rgb(255, 255, 255)"
    assert all(light != dark for light, dark in zip(seen["light"], seen["dark"], strict=True))


def test_charts_follow_the_windows_width(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["short"], width=1280)
    browser.view(width=500)
    browser.wait_for(
        "[...document.querySelectorAll('.plot svg')].map(svg => svg.getBoundingClientRect().width)",
        lambda widths: len(widths) == 16 and all(300 < width <= 468 for width in widths),
    )


def test_the_pointer_shows_the_same_moment_in_all_charts_of_a_trial(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["short"])
    browser.evaluate(
        "document.documentElement.style.scrollBehavior = 'auto', document.querySelector('.trial').scrollIntoView()"
    )
    left, top, width = browser.evaluate(
        "(box => [box.left, box.top, box.width])(document.querySelector('.trial .plot').getBoundingClientRect())"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + width / 2, y=top + 60)
    browser.wait_for(
        "[...document.querySelector('.trial').querySelectorAll('output')].map(one => one.textContent)",
        lambda shown: len(shown) == 35 and all(shown),
    )
    assert browser.evaluate("document.querySelectorAll('.cursor:not([hidden])').length") == 15


def test_opening_another_trial_draws_its_charts(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["short"])
    browser.evaluate("document.querySelector('details.trial').open = true")
    browser.wait_for(DRAWN, lambda drawn: (len(drawn), set(drawn)) == (31, {1}))


def test_paper_has_every_chart_in_daylight(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.open(pages["plain"], scheme="dark", width=1000)
    pdf = tmp_path / "report.pdf"
    pdf.write_bytes(browser.print_pdf())
    assert browser.complaints == []
    assert pdf.read_bytes().count(b"/Type /Page\n") + pdf.read_bytes().count(b"/Type /Page ") >= 4
    browser.wait_for(
        "document.querySelectorAll('details[data-print][open]').length", lambda still_open: still_open == 0
    )
    if shutil.which("pdftotext") is None:
        return
    words = subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, text=True, check=True).stdout
    for expected in ("PostgreSQL 18.6 on the bench", "Pressure stall (PSI)", "How to read this report", "--with-icu"):
        assert expected in words


def test_verdicts_stand_in_the_first_screen_in_colours_of_their_own(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["switchback"])
    for scheme in ("light", "dark"):
        browser.view(scheme=scheme)
        badges = browser.evaluate(
            "[...document.querySelectorAll('.verdicts .badge .word')].slice(0, 3).map(one => [one.textContent.trim(),"
            " one.getBoundingClientRect().bottom, getComputedStyle(one, '::before').backgroundColor])"
        )
        assert [words for words, _, _ in badges] == ["▼ slower", "? inconclusive", "▲ faster"]
        assert all(bottom < 900 for _, bottom, _ in badges)
        assert len({colour for _, _, colour in badges}) == 3
    # Their intervals lie left and right of the same nought.
    nought, *bars = browser.evaluate(
        "(figure => [...figure.querySelectorAll('.role-mark.mark-rule line')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.left, box.right]))(document.querySelector('#c1-intervals'))"
    )
    slower, inconclusive, faster = bars
    assert slower[1] < nought[0] < faster[0]
    assert inconclusive[0] < nought[0] < inconclusive[1]


def test_no_badge_covers_its_claim(browser: Browser, pages: dict[str, Path]) -> None:
    for name in ("switchback", "explained"):
        browser.open(pages[name])
        for width in (1240, 800, 400):
            browser.view(width=width)
            # The first badge gets the longest words that a verdict has.
            reach = browser.evaluate(
                "(all => { if (document.querySelector('.verdicts .badge')) all[0].textContent = '= equivalent within ±2.5 %';"
                " return all.map(one => one.getBoundingClientRect().right - one.closest('.badge').getBoundingClientRect().right)"
                "})([...document.querySelectorAll('.answers .badge .word')])"
            )
            assert reach
            assert max(reach) <= 0, (name, width)


def test_paper_has_the_verdicts_and_not_the_trials(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.open(pages["switchback"], scheme="dark", width=1000)
    pdf = tmp_path / "verdicts.pdf"
    pdf.write_bytes(browser.print_pdf())
    assert browser.complaints == []
    if shutil.which("pdftotext") is None:
        return
    words = subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, text=True, check=True).stdout
    for expected in ("▼ slower", "Not like with like", "Resource use per transaction", "Comparison method"):
        assert expected in words
    assert "steady from" not in words


def test_printing_at_once_draws_what_was_not_drawn_yet(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["short"])
    browser.evaluate("document.querySelector('details.trial').open = true, dispatchEvent(new Event('beforeprint'))")
    assert set(browser.evaluate(DRAWN)) == {1}
