"""docs/cases.md says what the commands that it names print, and what follows from the published figures; guides show outputs.

Blocks of `console` show commands that need nothing of this machine.
"""

from __future__ import annotations

import math
import re
import shlex
from functools import cache

import pytest

from pgdyno.analyse.estimate import estimate_mean_of_trials, t_quantile
from tests.cli.program import run_here
from tests.rows import check_rows

from .conftest import TREE

PAGE = (TREE / "docs" / "cases.md").read_text(encoding="utf-8")
GUIDES = [(TREE / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8") for name in ("price", "tune")]
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
ROW = re.compile(r"^\| (?P<said>.+) \| (?P<answer>.+) \| (?P<letters>[A-Z](?:, [A-Z])*) \|$", re.MULTILINE)
NAMED = re.compile(r"^- (?P<letter>[A-Z]): `\./pgdyno (?P<command>.+)`$", re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(?P<lines>.+?)^```", re.MULTILINE | re.DOTALL)


@cache
def read_output(command: str) -> str:
    """What a command prints, with single spaces; a refusal is an answer, too."""
    done = run_here(shlex.split(command), cwd=TREE)
    return " ".join(f"{done.stdout} {done.stderr}".split())


def list_quotes() -> list[tuple[str, tuple[str, ...]]]:
    """Each sentence in quotation marks and each line of a block, with the commands of which one must print it."""
    found = []
    for section in SECTIONS.values():
        commands = {match["letter"]: match["command"] for match in NAMED.finditer(section)}
        for row in ROW.finditer(section):
            asked = tuple(commands[letter] for letter in row["letters"].split(", "))
            found += [(quote, asked) for quote in re.findall("“(.+?)”", row["answer"])]
    blocks = [list(CONSOLE.finditer(page)) for page in (PAGE, *GUIDES)]
    assert all(blocks)
    for block in (block for page in blocks for block in page):
        command = ""
        for line in block["lines"].splitlines():
            if line.startswith("$ "):
                command = line.removeprefix("$ ./pgdyno ")
            else:
                found += [(" ".join(part.split()), (command,)) for part in line.split("…") if part.strip()]
    return found


def test_quotes_are_printed_by_the_commands_beside_them() -> None:
    quotes = list_quotes()
    assert len(quotes) > 40

    def check(row: tuple[str, tuple[str, ...]]) -> None:
        quote, commands = row
        assert any(quote in read_output(command) for command in commands), commands

    check_rows(quotes, check)
    with pytest.raises(AssertionError):
        check_rows([("nobody prints this", quotes[0][1])], check)


def test_every_command_is_quoted() -> None:
    for title, section in SECTIONS.items():
        asked = {letter for row in ROW.finditer(section) for letter in row["letters"].split(", ")}
        assert asked == {match["letter"] for match in NAMED.finditer(section)}, title


def change(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.1f} %"


def test_percentages_follow_from_the_published_tps() -> None:
    rows = re.findall(r"^\| (?:tpcb-like|select-only|simple-update) \| ([\d,.]+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for first, others in rows:
        reference = float(first.replace(",", ""))
        for value, said in re.findall(r"([\d,.]+) \((.+?)\)", others):
            assert said == change(float(value.replace(",", "")), reference)


def test_what_four_runs_of_one_configuration_can_tell() -> None:
    runs = [4_001.0, 3_884.0, 3_891.0, 3_959.0]
    mean = estimate_mean_of_trials(runs, unit="tps")
    assert mean.value is not None
    assert mean.low is not None
    assert mean.high is not None
    assert f"{mean.value:,.0f} [{mean.low:,.0f} – {mean.high:,.0f}]" in PAGE
    # The interval of the mean of n runs is t × s / √n; that of the difference of two further runs t × s × √2.
    within = (mean.high - mean.value) * math.sqrt(2 * len(runs)) / mean.value
    spread = math.sqrt(sum((run - mean.value) ** 2 for run in runs) / (len(runs) - 1))
    assert within == pytest.approx(t_quantile(len(runs) - 1, 0.975) * spread * math.sqrt(2) / mean.value, rel=1e-6)
    assert f"±{100 * within:.1f} %" in PAGE

    rows = [
        ("", 3_727, 4_844),
        (": within", 3_810, 3_959),
        (": beyond, with n = 1", 3_346, 3_959),
        (": 32 clients, prepared, against 50 clients, simple", 5_332, 4_844),
    ]
    for words, value, reference in rows:
        assert f"| {change(value, reference)}{words} |" in PAGE
        assert (words == ": within") == (abs(value / reference - 1) < within)
    delays, modes = (3_825, 3_914, 3_968, 3_992), (3_528, 5_405)
    said = ", ".join(change(value, 3_891) for value in delays)
    assert f"| {said}: all within ±{100 * within:.1f} % |" in PAGE
    assert all(abs(value / 3_891 - 1) < within for value in delays)
    said = ", ".join(change(value, 3_884) for value in modes)
    assert f"| {said}: beyond, with n = 1 |" in PAGE
    assert all(abs(value / 3_884 - 1) > within for value in modes)
