"""A script is split into commands as pgbench splits it, and pgbench is asked for the values of its variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgdyno.record.pgbench.output import parse_summary
from pgdyno.record.pgbench.script import Command, parse_script, plan_drawing, read_drawing
from tests.record.pgbench_captures import DATA, LOADS, Capture


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;\nSELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("-- one; two\nSELECT 1 -- ;\n, 2;", ["SELECT 1 \n, 2"]),
        (
            "SELECT ';', 'it''s;', E'a\\';', \";\", $$;$$, $a$;$$;$a$;SELECT a$1$;",
            ["SELECT ';', 'it''s;', E'a\\';', \";\", $$;$$, $a$;$$;$a$", "SELECT a$1$"],
        ),
        ("/* ; /* nested; */ ; */ SELECT 1;", ["/* ; /* nested; */ ; */ SELECT 1"]),
        (
            "CREATE RULE r AS DO (SELECT 1; SELECT 2); SELECT 3",
            ["CREATE RULE r AS DO (SELECT 1; SELECT 2)", "SELECT 3"],
        ),
        (
            "SELECT 1 AS a\\gset p_\nSELECT 2\\;SELECT 3 \\gset\n",
            ["SELECT 1 AS a", "\\gset p_", "SELECT 2", "SELECT 3", "\\gset"],
        ),
        ("\\set a \\\n 1 + 2\nSELECT :a", ["\\set a \\\n 1 + 2", "SELECT :a"]),
        ("\\startpipeline\nSELECT 1;\n\\endpipeline", ["\\startpipeline", "SELECT 1", "\\endpipeline"]),
        ("SELECT 'open;\nSELECT 2;", ["SELECT 'open;\nSELECT 2;"]),
    ],
)
def test_commands(script: str, commands: list[str]) -> None:
    assert [one.text for one in parse_script(script)] == commands


def test_commands_are_those_that_pgbench_lists() -> None:
    compared = 0
    for capture in LOADS:
        scripts = [file.read_text() for file in _list_files(capture)]
        summary = parse_summary(capture.stdout)
        listed = [one.statements for one in summary.scripts] or [summary.statements]
        if len(scripts) != len(listed) or not all(listed):
            continue
        for script, statements in zip(scripts, listed, strict=True):
            # pgbench prints a command's first line, with its semicolon.
            firsts = [one.text.splitlines()[0].rstrip("; ") for one in statements]
            assert [one.text.splitlines()[0] for one in parse_script(script)] == firsts, capture
            compared += 1
    assert compared > 3


def _list_files(capture: Capture) -> list[Path]:
    named = re.findall(r"([\w-]+\.sql)", " ".join(capture.argv))
    return [DATA / "scripts" / name for name in named if (DATA / "scripts" / name).exists()]


@pytest.mark.parametrize(
    ("text", "is_plannable"),
    [
        ("select 1", True),
        (" /* a */ ( (SELECT 1) UNION SELECT 2)", True),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", True),
        ("VALUES (1)", True),
        ("TABLE t", True),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DO NOTHING", True),
        ("BEGIN", False),
        ("SELECTED", False),
        ("EXPLAIN ANALYZE SELECT 1", False),
        ("SET x = 'SELECT'", False),
        ("CALL p()", False),
        ("\\set a 1", False),
    ],
)
def test_statements_with_plans(text: str, is_plannable: bool) -> None:
    assert Command(text=text).is_plannable is is_plannable


def test_variables_are_replaced_as_pgbench_replaces_them() -> None:
    command = Command(text="SELECT :a::int, ':b', a[1:2], :a + :c")
    assert command.variables == ("a", "b", "a", "c")
    assert command.number() == "SELECT $1::int, '$2', a[1:2], $3 + $4"
    assert command.fill({"a": "5", "b": "x"}) == "SELECT 5::int, 'x', a[1:2], 5 + :c"


def test_values_that_only_a_run_would_give_are_not_drawn() -> None:
    commands = parse_script(
        "\\set a random(1, :scale)\nSELECT max(i) AS m FROM t \\gset\n\\set b :a + :m\n\\setshell c echo 1\n"
        "\\if :m > 3\n\\set d :a * 2\n\\endif\nSELECT :a, :b, :c, :d, :m, :client_id;\nBEGIN :a;\n"
    )
    drawing = plan_drawing(commands)
    assert drawing.text == (
        "\\set a random(1, :scale)\n\\set d :a * 2\n\\set pgdyno_value debug(:a)\n"
        "\\set pgdyno_value debug(:client_id)\n\\set pgdyno_value debug(:d)\n"
    )
    printed = (
        "pgbench: client 0\ndebug(script=0,command=1): int 9\ndebug(script=0,command=3): int -7\n"
        "debug(script=0,command=4): int 0\ndebug(script=0,command=5): double 1.5\n"
        "debug(script=0,command=3): boolean true\ndebug(script=0,command=4): null\n"
    )
    (place,) = (place for place, one in enumerate(commands) if ":client_id" in one.text)
    assert read_drawing(drawing, printed) == (
        {place: {"a": "-7", "client_id": "0", "d": "1.5"}},
        {place: {"a": "true", "client_id": "NULL"}},
    )
    assert plan_drawing(parse_script("SELECT :m;")).text == ""
