"""The tables of docs/how-we-know.md are those that tools/figures.py writes from docs/figures."""

from __future__ import annotations

import importlib.util
import json
import operator
import re
from types import ModuleType
from typing import Any

import pytest

from .conftest import TREE

PAGE = TREE / "docs" / "how-we-know.md"
LINES = [
    (path.name, json.loads(line))
    for path in sorted((TREE / "docs" / "figures").glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()
]

COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures_tool", TREE / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_figures(tool: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert tool.fill_page(page, tool.read_figures()) == page, "run tools/figures.py"


def test_every_table_and_every_figure_is_in_use(tool: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("\n| ---") == 2 * page.count("<!-- figures\n"), "a table without its comment"
    assert tool.list_names(page) == {line["figure"] for _, line in LINES}


def read_guide(name: str) -> str:
    return " ".join((TREE / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8").split())


def test_the_guide_of_ci_quotes_the_largest_rates(tool: ModuleType) -> None:
    figures, page = tool.read_figures(), read_guide("ci")
    for names, words in (
        (r"verdicts\.simulate\.\w+\.\d_variants\.pgdyno", "false verdicts"),
        (r"verdicts\.simulate\.final_look\..+", "where studies are resumed"),
    ):
        rates = [figure["value"] for name, figure in figures.items() if re.fullmatch(names, name)]
        assert f"at most {max(rates) * 100:.1f} % {words}" in page
    real = figures["verdicts.server.identical.live.false"]
    share, low, high = (f"{real[field] * 100:.1f}" for field in ("value", "low", "high"))
    assert f"{share} % were false ({low} to {high} %, n = {real['n']})" in page


def test_the_guide_of_compare_quotes_how_live_pairs_scatter(tool: ModuleType) -> None:
    figures, page = tool.read_figures(), read_guide("compare")
    for workload in ("tpcb-like", "select-only", "simple-update"):
        ratio = figures[f"answers.{workload}.scatter_ratio"]
        interval = f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        assert re.search(rf"{re.escape(interval)} [a-z ]*with {workload}", page)


def test_the_guide_of_restoring_quotes_what_was_announced(tool: ModuleType) -> None:
    figures, page = tool.read_figures(), read_guide("restoring")
    for policy in ("copy", "none"):
        announced, measured, ratio = (
            figures[f"restore.announced.tpcb-like.{policy}.{name}"]
            for name in ("announced", "measured", "measured_to_announced")
        )
        seconds = f"{measured['value']:.0f} s [{measured['low']:.0f}, {measured['high']:.0f}]"
        interval = f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        assert f"{seconds} of the announced {announced['value']:.0f} s, {interval} of them" in page


def test_figures_are_whole(tool: ModuleType) -> None:
    wrong = [f"{name}: {line['figure']}" for name, line in LINES if tuple(line) != tool.FIELDS or not is_whole(line)]
    assert not wrong, "\n".join(wrong)


def is_whole(line: dict[str, Any]) -> bool:
    value, low, high, target = (line[field] for field in ("value", "low", "high", "target"))
    bound = re.fullmatch(r"(<=|>=|<|>) (\S+)", target or "")
    return (
        (low is None) == (high is None)
        and (low is None or low <= value <= high)
        and (line["holds"] is None) == (target is None)
        and (bound is None or COMPARE[bound[1]](value, float(bound[2])) == line["holds"])
        and bool(line["unit"])
        and bool(line["command"])
    )


def test_a_table_is_filled(tool: ModuleType) -> None:
    page = "<!-- figures\n| a | n |\n| x | {f.[1,2].value * 100 : .1f} | {g.low / 1e3 : +.0f} | {g.n} |\n-->\n| old |\n\nend\n"
    figures = {
        "f.1": {"value": 0.123, "low": None, "n": 1},
        "f.2": {"value": 2, "low": None, "n": 1},
        "g": {"value": 1, "low": 4000, "n": 7},
    }
    filled = tool.fill_page(page, figures)
    assert filled.endswith("-->\n| a | n |\n| x | 12.3 | 200.0 | +4 | 7 |\n\nend\n")
    assert tool.fill_page(filled, figures) == filled
    assert tool.list_names(page) == {"f.1", "f.2", "g"}
    with pytest.raises(KeyError, match=r"f\.2"):
        tool.fill_page(page, {"f.1": figures["f.1"], "g": figures["g"]})


def test_new_figures_take_the_place_of_old_ones(tool: ModuleType) -> None:
    kept = ['{"figure": "a", "value": 1, "command": "python a.py", "date": null}', '{"figure": "b", "value": 2}']
    printed = ["some words", '{"figure": "a", "value": 3, "n": 4}', '{"figure": "c", "value": 5}']
    lines = [json.loads(line) for line in tool.merge_lines(kept, printed, date="2026-01-02")]
    assert [(line["figure"], line["value"], line["command"], line["date"]) for line in lines] == [
        ("a", 3, "python a.py", "2026-01-02"),
        ("b", 2, None, None),
        ("c", 5, None, "2026-01-02"),
    ]
