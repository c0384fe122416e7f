"""What goes to another machine with a command, and what a machine that lies can write here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgdyno.cli.over import _name_from_here
from pgdyno.errors import SpecError, StepFailedError
from pgdyno.flow.far_order import make_entry, read_order
from pgdyno.flow.over import _check_not_killed, _keep_own, _Run, _write_stub
from pgdyno.record.far import FarRecord
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.over.command import Order
from tests.records import RECORDS, WRITING

NOTE = FarRecord(ssh="db1", folder="/home/me/pgdyno-on/1", record="mine")


def test_a_machine_has_no_say_in_the_names_of_files_here(tmp_path: Path) -> None:
    home, other = tmp_path / "records" / "mine", tmp_path / "other"
    record = (RECORDS / WRITING / "record.json").read_text()
    _write_stub(home, NOTE, {str(other): "x", "../../other": "x", "record.json": record, "study.toml": ""}, {})
    assert not other.exists()
    assert {path.name for path in home.iterdir()} == {"trials", "init", "ssh.json", "record.json", "study.toml"}
    with pytest.raises(StepFailedError, match="cannot write a record"):
        _write_stub(home, NOTE, {"record.json": "of another study"}, {})
    assert (home / "record.json").read_text() == record


def test_what_a_record_begins_with_is_all_that_it_takes_to_begin_anew(tmp_path: Path) -> None:
    for name in ("think.sql", "tables.sql", "other.sql"):
        (tmp_path / name).write_text(f"SELECT '{name}';\n")
    told = json.loads((RECORDS / WRITING / "record.json").read_text())
    told["plan"]["workloads"][0]["scripts"] = [
        [f"{NOTE.folder}/below/think.sql", 1],
        ["/of/that/machine.sql", 1],
        ["tpcb-like", 1],
    ]
    told["study"]["data"] = {"init": f"{NOTE.folder}/tables.sql"}
    told["study"]["workload"][0]["scripts"] = [f"{NOTE.folder}/below/think.sql"]
    told["study"]["server"] |= {"kind": "given", "dsn": "service=bench"}
    sent = {"below/think.sql": tmp_path / "think.sql", "tables.sql": tmp_path / "tables.sql"}
    home = tmp_path / "mine"
    _write_stub(home, NOTE, {"record.json": json.dumps(told)}, {**sent, "other.sql": tmp_path / "other.sql"})
    kept = {path.name: path.read_text() for path in home.rglob("*.sql")}
    assert kept == {"think.sql": "SELECT 'think.sql';\n", "tables.sql": "SELECT 'tables.sql';\n"}
    # It is a record only when all of that is there.
    (tmp_path / "think.sql").unlink()
    with pytest.raises(StepFailedError, match="cannot write a record"):
        _write_stub(tmp_path / "cut", NOTE, {"record.json": json.dumps(told)}, sent)
    # Half of it would block the next attempt.
    assert not (tmp_path / "cut").exists()
    (tmp_path / "think.sql").write_text("SELECT 'think.sql';\n")
    # A machine that lies names a file that was not sent to it.
    told["study"]["data"]["init"] = str(tmp_path / "other.sql")
    _write_stub(tmp_path / "lies", NOTE, {"record.json": json.dumps(told)}, sent)
    assert {path.name for path in (tmp_path / "lies").rglob("*.sql")} == {"think.sql"}


def test_what_words_and_studies_name_by_relative_paths_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    below = tmp_path / "below"
    below.mkdir()
    (below / "a.sql").touch()
    (below / "mine.toml").write_text('[[workload]]\nscripts = ["a.sql@3", "/of/that/machine.sql", "select-only"]\n')
    order = read_order(["run", "below/mine.toml", "--set", "a=" + 300 * "x"], "me@db1")
    assert set(order.files) == {"below/mine.toml", "below/a.sql"}
    assert order.result is not None
    assert order.result.endswith("-run-me-db1")
    for words in (["--workload", "below/a.sql@3"], ["--workload=below/a.sql@3"], ["--workload=below/a.sql"]):
        assert set(read_order(["bench", *words], "db1").files) == {"below/a.sql"}
    (tmp_path / "out.sql").touch()
    (below / "mine.toml").write_text('[[workload]]\nscripts = ["../out.sql"]\n')
    monkeypatch.chdir(below)
    with pytest.raises(SpecError, match=r"mine\.toml: \.\./out\.sql lies outside of this folder"):
        read_order(["run", "mine.toml"], "db1")


def test_a_study_that_was_read_here_goes_along_by_whatever_path_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "mine.toml").touch()
    (study := tmp_path / "below/mine.toml").touch()
    monkeypatch.chdir(tmp_path)
    for path in (study, Path("below/mine.toml"), tmp_path / "elsewhere/below/mine.toml"):
        order = read_order(_name_from_here(path, ["run", str(path), "--out", "new"]), "db1")
        assert (order.words[1], *order.files) == ("below/mine.toml", "below/mine.toml")
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(SpecError, match=r"\.\./mine\.toml lies outside of this folder"):
        read_order(_name_from_here(tmp_path / "mine.toml", ["run", f"{tmp_path}/mine.toml"]), "db1")
    assert _name_from_here(None, ["check"]) == ["check"]


def test_a_study_that_is_not_here_is_missed_before_pgdyno_is_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["run", "mine.toml"], ["plan", "--json", "mine.toml"], ["run", "tpcb-like", "below/mine.toml"]):
        with pytest.raises(SpecError, match=r"there is no study (below/)?mine\.toml here") as caught:
            read_order(words, "db1")
        assert "by its absolute path" in caught.value.hint
    for words in (["run", "/there/mine.toml"], ["run", "tpcb-like", "--out", "mine.toml"], ["check", "tpcb-like"]):
        assert not read_order(words, "db1").files


def test_of_several_places_for_a_record_the_last_one_comes_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_order(["bench", "--out", "first", "--out=second"], "db1").result == "second"


def test_a_record_is_looked_for_by_the_path_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_order(["bench", "--out", "a/../second"], "db1").result == "second"


def test_what_was_added_at_the_top_of_a_record_is_kept_but_no_report_of_an_earlier_state(tmp_path: Path) -> None:
    home, new = tmp_path / "home", tmp_path / "new"
    for name in (
        "confirmations.json",
        "record.json",
        "report.html",
        "report.md",
        "report.json",
        "notes/mine.txt",
        ".lock",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("here")
    (home / "elsewhere").symlink_to("/nowhere")
    new.mkdir()
    for name in ("confirmations.json", "record.json", "report.md"):
        (new / name).write_text("from there")
    _keep_own(home, new)
    texts = {str(path.relative_to(new)): path.read_text() for path in new.rglob("*") if path.is_file()}
    assert texts == {
        "confirmations.json": "here",
        "notes/mine.txt": "here",
        "record.json": "from there",
        "report.md": "from there",
    }
    assert (new / "elsewhere").is_symlink()


@pytest.mark.parametrize(
    ("record", "goes_on"),
    [(None, ""), (Path("mine"), "what was finished is here; `pgdyno resume mine` continues; ")],
)
def test_how_settings_are_put_back_is_said_where_pgdyno_was_killed(record: Path | None, goes_on: str) -> None:
    with pytest.raises(StepFailedError, match="pgdyno was killed on db1, by signal 9") as caught:
        _check_not_killed("db1", 137, record)
    restores = "`pgdyno on db1 restore` puts settings of that machine back, if it had changed any"
    assert caught.value.hint == goes_on + restores


def test_a_link_that_is_lost_while_a_study_is_resumed_leaves_it_to_be_resumed() -> None:
    words = {"resume": "; `pgdyno resume mine` continues", "run": ""}
    for command, said in words.items():
        lost = _Run(SshLink(make_entry("db1"), Path()), Order(words=(command,), result="mine"), Path("mine"), loads={})
        assert lost._goes_on == said
