from __future__ import annotations

import json
from pathlib import Path

import msgspec
from rich.console import Console

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.documents.check import check_document
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.level import Level
from pgdyno.report.sections.conditions.preflight import build_check, make_claim, summarise
from pgdyno.report.sections.machine import preflight_table
from tests.given import SERVER
from tests.proc_trees import Scenario, look, read_scenarios
from tests.report.build import build_report

LOAD = next(one for one in read_scenarios() if one.name == "the last load still runs")


def printed(renderable: object, *, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_terminal(tmp_path: Path) -> None:
    host, facts = look(tmp_path, LOAD)
    seen = msgspec.structs.replace(facts, unseen=(Unseen(what="systemd's timers", reason="no bus"),), took_s=1.5)
    text = printed(
        print_terminal(build_check("a machine", find_obstacles(host, seen), seen), level=Level.STANDARD), width=60
    )
    assert text.startswith(
        "a machine\n\nproblem: Another pgdyno is measuring on this machine.\n  observed: pgbench (pid 800)"
    )
    assert "\n  fix: Wait for it, or end it if it is yours.\n" in text
    assert "Not observed\n  systemd's timers: no bus\n" in text
    assert text.endswith("1 problem (1.5 s)\n")
    assert all(len(line) <= 60 and line == line.rstrip() for line in text.splitlines())


def test_nothing_found(tmp_path: Path) -> None:
    host, facts = look(tmp_path, Scenario(name="quiet"))
    found = find_obstacles(host, facts)
    assert "no problem was found" in printed(
        print_terminal(build_check("a machine", found, facts), level=Level.STANDARD), width=100
    )
    document = json.loads(msgspec.json.encode(check_document("a machine", found, host=host, facts=facts)))
    assert (document["would_spoil"], document["findings"]) == (False, [])


def test_json(tmp_path: Path) -> None:
    host, facts = look(tmp_path, LOAD)
    found = find_obstacles(host, facts)
    document = json.loads(msgspec.json.encode(check_document("a machine", found, host=host, facts=facts)))
    assert document["would_spoil"] is True
    (only,) = document["findings"]
    assert (only["rule"], only["severity"]) == ("load-running", "spoils")
    assert only["why"]
    assert only["mend"].startswith("Wait for it")
    assert document["facts"]["load_programs"][0] == {"pid": 800, "name": "pgbench"}


def test_counts_in_words() -> None:
    def some(*severities: Severity) -> str:
        return summarise([Finding(severity=one, claim="c", evidence="e") for one in severities])

    critical, warning, note = Severity
    assert some(critical, critical, warning) == "2 problems, 1 finding that costs speed"
    assert some(warning, warning, note, note) == "2 findings that cost speed, 2 notes"


def test_a_warning_that_is_not_about_speed_is_called_one() -> None:
    found = find_given_obstacles(msgspec.structs.replace(SERVER, is_encrypted=False), clients=1, has_password=True)
    assert [make_claim(one).badge for one in found] == ["warning", "warning"]
    assert summarise(found) == "2 warnings"


def test_the_table_of_a_report(tmp_path: Path) -> None:
    report = build_report()
    assert (
        preflight_table(msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, preflight=None)))
        is None
    )
    host, facts = look(tmp_path, LOAD)
    facts = msgspec.structs.replace(facts, unseen=(Unseen(what="systemd's timers", reason="no bus"),))
    record = msgspec.structs.replace(report.record, host=host, preflight=facts)
    table = preflight_table(msgspec.structs.replace(report, record=record))
    assert table is not None
    words = [cell.text for row in table.rows for cell in row]
    assert "Another pgdyno is measuring on this machine." in words
    assert any("The data fit into memory" in word for word in words)
    assert [cell.text for cell in table.rows[-1]][:3] == ["not checked", "systemd's timers", "no bus"]
    assert "1 problem" in table.remark
