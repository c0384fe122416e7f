"""The judgement of famous lines agrees with what the rules derive, and the guide shows all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pgdyno.facts.famous_lines import FamousLine, LineVerdict, famous_lines, famous_names
from pgdyno.tune.derive import derive
from pgdyno.tune.types import Target
from tests.tune.subjects import make_seen

PAGE = Path(__file__).parents[2] / "docs/guide/famous-lines.md"
MARK = "<!-- from src/pgdyno/facts/famous_lines.toml; tests/tune/test_famous_lines.py --update-golden writes it -->\n"


def test_each_name_is_judged_once_in_a_sentence_with_a_source() -> None:
    lines = [line for some in famous_lines().values() for line in some]
    names = [name.lower() for line in lines for name in line.names]
    assert len(names) == len(set(names)) == len(famous_names())
    for line in lines:
        assert line.why.endswith("."), line.names
        assert ". " not in line.why, f"{line.names}: one sentence"
        assert line.source
        assert not line.source.endswith("."), line.names


def test_what_is_derived_is_said_to_be() -> None:
    derived = {one.name for one in derive(make_seen()).of(Target.SYSCTL)}
    lines = famous_lines()["sysctl.conf"]
    assert derived == {name for line in lines if line.verdict is LineVerdict.DERIVED for name in line.names}


def test_the_guide_shows_every_line(golden: Callable[[Path, str], None]) -> None:
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark
    golden(PAGE, head + mark + "\n".join(_write_tables()) + "\n")


def _write_tables() -> Iterator[str]:
    for place, lines in famous_lines().items():
        yield f"\n## {place if '.conf' in place else place.capitalize()}\n"
        yield "| line | `tune` | why |\n| --- | --- | --- |"
        yield from map(_write_row, lines)


def _write_row(line: FamousLine) -> str:
    return f"| {', '.join(f'`{name}`' for name in line.names)} | {line.verdict.value} | {line.why} |"
