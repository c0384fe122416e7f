"""A site of records: what may be compared shares a table, nothing of a record runs, and no folder of the user's is harmed."""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.analyse.records.groups import group_sides
from pgdyno.errors import SpecError
from pgdyno.flow.records.publish import name_folders, publish
from tests.analyse.test_records_gate import change_load, changed
from tests.cli.program import run_here
from tests.records import RECORDS, copy_record, edit
from tests.report.accessibility import find_barriers
from tests.report.browser import CHROMIUM, Browser

HOSTILE = "<img src=x onerror=document.title=1>"


class Silent:
    def say(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("records")
    first = copy_record(folder / "first")
    second = copy_record(folder / HOSTILE, at="2026-11-23T10:00:00+00:00")
    edit(second / "record.json", lambda record: record["study"].update(question=f"</script>{HOSTILE}"))
    return first, second


@pytest.fixture(scope="module")
def site(records: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("sites") / "site"
    done = run_here(["publish", *map(str, records), "--to", str(to), "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((to / "site.json").read_text())
    return to


def test_loads_that_answer_one_question_share_a_table(site: Path) -> None:
    told = json.loads((site / "site.json").read_text())
    assert told["pages"] == ["index.html", "first/report.html", "img-src-x-onerror-document.title-1/report.html"]
    assert all((site / page).is_file() for page in told["pages"])
    assert [(load["group"], load["trials_count"]) for load in told["loads"]] == [(1, 2), (1, 2)]
    assert told["loads"][0]["spread_ratio"] > 0
    assert told["loads"][0]["declared"] == []
    text = (site / "index.html").read_text()
    assert '<a href="first/report.html">first</a>' in text
    # Both are one record in truth, whose trials are too short to look for cliffs.
    assert told["loads"][1]["declared"] == ["cliffs and stalls"]
    assert ">nothing; in both: cliffs and stalls (not looked for)</td>" in text
    assert "Durability given up" in text
    # Two trials say little, and a page must not promise more of every record.
    assert text.count("The trials give no useful interval of TPS.") == 2
    assert text.count('<span class="detail interval">(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2)</span>') >= 2, (
        "it would take a line for each word"
    )
    assert "random order" not in text
    assert HOSTILE not in text


def test_what_may_not_be_compared_has_a_table_of_its_own() -> None:
    side = changed()
    other = changed(study=change_load(clients=9), side=side)
    groups = group_sides([[other], [side], [side]])
    assert [[one.place for one in group] for group in groups] == [[1, 2], [0]]


def test_each_entry_of_the_contents_has_a_name_of_its_own(tmp_path: Path) -> None:
    named = [
        copy_record(tmp_path / "one"),
        copy_record(tmp_path / "two", at="2026-11-23T10:00:00+00:00", study=change_load(clients=9)),
    ]
    publish(named, to=tmp_path / "site", ui=Silent())  # type: ignore[arg-type]
    listed = re.findall(r'<li><a href="#group-\d+">([^<]*)</a>', (tmp_path / "site/index.html").read_text())
    assert len(set(listed)) == len(listed) == 2
    assert any("9 clients" in name for name in listed)


def test_each_load_says_what_limited_it(tmp_path: Path) -> None:
    publish([RECORDS / "v1-pg15"], to=tmp_path / "site", ui=Silent())  # type: ignore[arg-type]
    text = (tmp_path / "site/index.html").read_text()
    # In the table and, with the evidence, in the audit.
    assert text.count("The client limits this load.") == 2
    assert "1,814 transactions of 1,796 scheduled" in text


def test_data_that_have_no_scale_have_their_name(tmp_path: Path) -> None:
    record = copy_record(
        tmp_path / "record", study=lambda record: record["plan"].update(data_name="database <app>", scale=1)
    )
    publish([record], to=tmp_path / "site", ui=Silent())  # type: ignore[arg-type]
    text = (tmp_path / "site/index.html").read_text()
    assert ("database &lt;app&gt;" in text, "scale 1" in text) == (True, False)


def test_a_site_is_replaced_as_a_whole_and_nothing_else_is(records: tuple[Path, Path], tmp_path: Path) -> None:
    to = tmp_path / "site"
    publish(records, to=to, ui=Silent())  # type: ignore[arg-type]
    publish(records[:1], to=to, ui=Silent())  # type: ignore[arg-type]
    assert sorted(path.name for path in to.iterdir()) == ["first", "index.html", "site.json"]
    (to / "mine.txt").write_text("kept")
    for folder in (to, tmp_path / "none" / "site", records[0]):
        with pytest.raises(SpecError):
            publish(records[:1], to=folder, ui=Silent())  # type: ignore[arg-type]
    assert (to / "mine.txt").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    with pytest.raises(SpecError, match="are one record"):
        publish([records[0], records[0]], to=tmp_path / "other", ui=Silent())  # type: ignore[arg-type]


def test_a_link_to_a_folder_stays_one(records: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "site").symlink_to("www/site")
    for _ in range(2):
        publish(records[:1], to=tmp_path / "site", ui=Silent())  # type: ignore[arg-type]
        assert (tmp_path / "site").is_symlink()
        assert (tmp_path / "www/site/index.html").is_file()
    (tmp_path / "www/site/mine").symlink_to(tmp_path)
    with pytest.raises(SpecError, match="not a site that pgdyno wrote"):
        publish(records[:1], to=tmp_path / "site", ui=Silent())  # type: ignore[arg-type]


def test_there_is_a_site_at_each_moment(
    records: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, rename, seen = tmp_path / "site", Path.rename, []

    def look(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        seen.append((to / "site.json").is_file())
        return moved

    monkeypatch.setattr(Path, "rename", look)
    for _ in range(2):
        publish(records[:1], to=to, ui=Silent())  # type: ignore[arg-type]
    assert seen
    assert all(seen)


def test_a_site_that_cannot_be_moved_to_its_place_leaves_the_old_one(
    records: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "site"
    publish(records[:1], to=to, ui=Silent())  # type: ignore[arg-type]
    before = (to / "site.json").read_bytes()
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "made":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    # As with a libc that cannot exchange two folders.
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(KeyboardInterrupt):
        publish(records, to=to, ui=Silent())  # type: ignore[arg-type]
    assert (to / "site.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_folder_has_a_name_for_addresses() -> None:
    assert name_folders(["a b", "A-b", "..", "", "ü/<x>", "x" * 200, "Index.html", "site.json"]) == (
        "a-b",
        "A-b-2",
        "record",
        "record-2",
        "x",
        "x" * 80,
        "Index.html-2",
        "site.json-2",
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI may not skip the browser: no chromium is installed")
        pytest.skip("no chromium is installed")
    with Browser() as running:
        yield running


def test_a_phone_sorts_the_index_and_nothing_of_a_record_runs(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html", width=375, scheme="dark")
    first = "[...document.querySelectorAll('#records tbody tr th')].map(one => one.textContent)"
    press = "[...document.querySelectorAll('#records thead button')].find(one => one.textContent === 'Began').click()"
    assert browser.evaluate(first) == ["first", HOSTILE]
    for order, names in (("ascending", ["first", HOSTILE]), ("descending", [HOSTILE, "first"])):
        browser.evaluate(press)
        assert browser.evaluate(first) == names
        assert browser.evaluate("document.querySelector('#records th[aria-sort]').getAttribute('aria-sort')") == order
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.title") == "Published records – pgdyno"
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 375
    assert find_barriers(browser) == []
    browser.view(width=1280)
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    browser.wait_for(cut, lambda found: found == [])
    assert browser.complaints == []
    assert browser.requests == [(site / "index.html").as_uri()]
