"""`compare-records`, `journal` and `export` as a user runs them: exit codes, one JSON document, files."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from pgdyno.record.frames import pl
from tests.cli.program import Bench, run_here
from tests.loops import mounted
from tests.records import RECORDS, WRITING, copy_record, edit


def test_records_that_may_be_compared_end_well_and_those_that_may_not_as_a_wrong_question(tmp_path: Path) -> None:
    bench, first = Bench(tmp_path), str(RECORDS / WRITING)
    copy_record(tmp_path / "again")
    cold = copy_record(tmp_path / "cold", study=lambda record: record["study"]["trials"].update(cache="cold"))
    done = bench.run("compare-records", first, "again", "--out", "side.md")
    assert done.returncode == 0, done.stderr
    assert "a difference, not a verdict" in done.stdout
    assert (tmp_path / "side.md").read_text().startswith("# Records side by side")
    refused = bench.read("compare-records", first, str(cold), "--json")
    assert refused.returncode == 2
    assert refused.stderr == ""
    document = json.loads(refused.stdout)
    assert document["is_refused"] is True
    assert document["against_first"][0]["pairs"][0]["differences"][0]["subject"] == "caches"
    wrong = bench.read("compare-records", first, "nowhere", "--json")
    assert wrong.returncode == 2
    assert json.loads(wrong.stdout)["error"]["fact"] == "nowhere is not a record"


def test_a_record_that_was_broken_off_is_said_to_be(tmp_path: Path) -> None:
    shutil.rmtree(copy_record(tmp_path / "broken-off") / "trials" / "0002")
    done = Bench(tmp_path).read("compare-records", str(RECORDS / WRITING), "broken-off")
    assert done.stderr.startswith("note: broken-off is unfinished: 1 of 2 trials are finished")


def test_a_journal_lists_what_is_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert "no records in pgdyno-records" in bench.read("journal").stdout
    for command in ("journal", "list"):
        done = bench.read(command, "--records", "pgdyno-record")
        assert done.returncode == 2
        assert done.stderr.startswith("error: --records pgdyno-record: there is no such folder")
    (tmp_path / "file").touch()
    assert bench.read("list", "--records", "file").stderr.startswith("error: --records file: not a folder")
    copy_record(tmp_path / "pgdyno-records" / "one")
    (entry,) = bench.read_json("journal")["entries"]
    assert entry["path"] == "pgdyno-records/one"
    assert "tpcb-like: 3,300 TPS (no useful interval), n = 2" in bench.read("journal").stdout


def test_a_record_that_cannot_be_read_is_listed_with_the_reason_and_the_others_as_ever(tmp_path: Path) -> None:
    bench, folder = Bench(tmp_path), tmp_path / "pgdyno-records"
    closed = copy_record(folder / "closed") / "trials" / "0001" / "trial.json"
    closed.unlink()
    # Nobody can read it, not even root.
    closed.mkdir()
    copy_record(folder / "good")
    copy_record(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")))
    names = [f"pgdyno-records/{name}" for name in ("closed", "good", "caf\\xe9")]
    listed = {one["path"]: one["problem"] for one in bench.read_json("list")["records"]}
    assert set(listed) == set(names)
    assert listed[names[1]] is None
    assert listed[names[0]] == f"{names[0]}/trials/0001/trial.json: Is a directory"
    assert listed[names[2]].startswith(f"{names[2]} has a name that is not UTF-8")
    journal = bench.read_json("journal")
    assert [one["path"] for one in journal["entries"]] == [names[1]]
    assert {one["path"] for one in journal["unreadable"]} == {names[0], names[2]}
    assert names[1] in bench.read("list").stdout


def test_tables_of_a_record_are_written_for_other_programs(tmp_path: Path) -> None:
    bench, record, tables = Bench(tmp_path), str(RECORDS / WRITING), tmp_path / "tables"
    document = bench.read_json("export", record, "--csv", "tables")
    rows = {Path(one["path"]).stem: one["row_count"] for one in document["tables"]}
    assert set(rows) == {"trials", "seconds", "series", "waits", "statements"}
    assert all(rows.values())
    with (tables / "trials.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["trial"], second["trial"]) == ("1", "2")
    assert float(first["latency_stddev_ms"]) > 0
    assert bench.read("export", record, "--parquet", "tables").returncode == 0
    tps = pl.read_parquet(tables / "trials.parquet").get_column("tps").to_list()
    assert tps == [float(one["tps"]) for one in (first, second)]
    # Nothing that is there is written over.
    again = bench.read("export", record, "--csv", "tables")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    for options in ((), ("--csv", "a", "--parquet", "b")):
        refused = bench.read("export", record, *options)
        assert refused.returncode == 2
        assert "--csv DIR, --parquet DIR, --openmetrics FILE, --otlp URL, --junit FILE or --bmf FILE" in refused.stderr
    assert not (tmp_path / "a").exists()
    assert " values of " in bench.read("export", record, "--openmetrics", "metrics").stdout
    assert (tmp_path / "metrics").read_text().endswith("\n# EOF\n")
    assert "is there already" in bench.read("export", record, "--openmetrics", "metrics").stderr
    assert "metrics is no folder" in bench.read("export", record, "--csv", "metrics").stderr
    assert "hint: name another file" in bench.read("export", record, "--openmetrics", "nowhere/metrics").stderr
    unreached = bench.read("export", record, "--otlp", "http://127.0.0.1:1")
    assert (unreached.returncode, unreached.stdout) == (3, "")
    assert "http://127.0.0.1:1/v1/metrics cannot be reached" in unreached.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system of its own")
def test_a_full_disk_is_told_in_words_and_no_file_looks_whole(tmp_path: Path) -> None:
    bench, record = Bench(tmp_path), str(copy_record(tmp_path / "records/one"))
    with mounted("none", tmp_path / "disk", "-t", "tmpfs", "-o", "size=4k") as disk:
        for words in (
            ("export", record, "--csv", "disk/tables"),
            ("export", record, "--parquet", "disk/tables"),
            ("export", record, "--openmetrics", "disk/metrics"),
            ("history", "records", "--out", "disk/history.html"),
            ("publish", record, "--to", "disk/site"),
        ):
            done = bench.read(*words)
            assert (done.returncode, done.stdout) == (3, ""), words
            assert f"error: cannot write {'to ' * ('disk/tables' in words)}disk/" in done.stderr
            assert "No space left on device" in done.stderr
            assert not [path for path in disk.rglob("*") if path.is_file()]


def test_records_of_several_time_zones_show_when_they_began_in_utc(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for name, at in (("here", "2026-11-22T10:00:00+01:00"), ("tokyo", "2026-11-22T10:00:00+09:00")):
        copy_record(tmp_path / "pgdyno-records" / name, at=at)
    records = tuple(f"pgdyno-records/{name}" for name in ("here", "tokyo"))
    assert bench.read("publish", *records, "--to", "site").returncode == 0
    shown = (
        bench.read("journal").stdout,
        bench.read("compare-records", *records).stdout,
        (tmp_path / "site" / "index.html").read_text(),
    )
    for words in shown:
        assert "2026-11-22 09:00 UTC" in words
        assert "2026-11-22 01:00 UTC" in words
        assert "2026-11-22 10:00" not in words


def test_a_path_is_printed_as_it_is_whatever_it_holds(tmp_path: Path) -> None:
    bench, record = Bench(tmp_path), str(copy_record(tmp_path / "one"))
    for folder in ("x[/b]", "site["):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("out[final].om", "x[/b]/y.om"):
        done = bench.read("export", record, "--openmetrics", file)
        assert (done.returncode, done.stdout.partition(":")[0]) == (0, file), done.stderr
    assert bench.read("publish", record, "--to", "site[/b]").stdout == "site[/b]/index.html: 1 record\n"


def test_metrics_have_the_name_of_a_record_that_is_exported_from_its_own_folder(tmp_path: Path) -> None:
    folder = copy_record(tmp_path / "one")
    (tmp_path / "latest").symlink_to("one")
    called = (
        (folder, ".", "one"),
        (folder / "trials", "..", "one"),
        (tmp_path, "one", "one"),
        (tmp_path, "latest", "latest"),
    )
    for number, (cwd, named, label) in enumerate(called):
        file = tmp_path / f"{number}.om"
        assert run_here(["export", named, "--openmetrics", str(file)], cwd=cwd).returncode == 0
        assert set(re.findall(r'record="(.*?)"', file.read_text())) == {label}


def test_a_record_of_others_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    path = copy_record(tmp_path / "pgdyno-records" / "b")
    edit(path / "record.json", lambda record: record["study"].update(question="Fast?\x1b]0;owned\x07\x9b31m ü"))
    told = [run_here([*words], cwd=tmp_path) for words in (["list"], ["show"], ["run", "\x1b[31mx.toml"])]
    assert [one.returncode for one in told] == [0, 0, 2]
    assert "Fast?]0;owned31m ü" in told[0].stdout
    assert "[31mx.toml" in told[2].stderr
    shown = "".join(one.stdout + one.stderr for one in told)
    assert {letter for letter in shown if not letter.isprintable()} <= {"\n", "\t"}
