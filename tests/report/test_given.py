"""A server of the user's whose machine nobody saw: every form says so, and nothing that was not seen."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import msgspec
import pytest
from rich.console import Console, RenderableType

from pgdyno.analyse.transaction_time.shares import Certainty, Resource
from pgdyno.errors import ExitCode, SpecError
from pgdyno.flow.explain import explain
from pgdyno.flow.price import price_records
from pgdyno.flow.records.compare import compare_named
from pgdyno.flow.records.journal import read_journal
from pgdyno.flow.records.list import view_records
from pgdyno.flow.report import compose_report, write_reports
from pgdyno.flow.terminal import print_document
from pgdyno.record.device.disk_card import write_card
from pgdyno.record.machine.given_server import Capability, GivenServer
from pgdyno.record.samples.clock import SERVER_CLOCK_FILE
from pgdyno.record.store import RecordStore
from pgdyno.report.document import Prose
from pgdyno.report.documents.report import make_schema
from pgdyno.report.sections.conditions.given_server import build_given_check
from pgdyno.report.sections.first_page import make_first_page
from pgdyno.tune.measured_load import read_measured
from tests.disk_cards import make_card
from tests.given import RECORDS, SERVER, give, watch

GOLDEN = Path(__file__).parent / "golden"
# The load's machine has 2 CPUs and 23.5 GB, which the head says of it once; nothing else of a machine was seen.
NOT_SEEN = ("AMD EPYC", "ext4", "/dev/vda", "6.18.44", "Debian GNU", "mq-deadline", "GB of memory", "this machine")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordStore:
    monkeypatch.chdir(tmp_path)
    return give("v1-pg18", Path())


def words(shown: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def forms(store: RecordStore) -> Iterator[str]:
    report = write_reports(store)
    yield words(report.to_terminal())
    yield words(explain(store).to_terminal())
    yield (store.path / "report.md").read_text()
    yield (store.path / "report.html").read_text().replace("\xa0", " ")


def test_the_report(store: RecordStore, golden: Callable[[Path, str], None]) -> None:
    write_reports(store)
    golden(GOLDEN / "given.md", (store.path / "report.md").read_text())


@pytest.mark.parametrize(
    "server", [SERVER, msgspec.structs.replace(SERVER, service="Amazon RDS", settings_way="by a parameter group")]
)
def test_no_form_states_what_was_not_seen(server: GivenServer, tmp_path: Path) -> None:
    for text in forms(give("v1-pg18", tmp_path, server=server)):
        assert not [one for one in NOT_SEEN if one in text]
        assert text.count("23.5 GB") == text.count("the load came from load1 (2 CPUs, 23.5 GB)") > 0
        assert "at db1.example:5432, whose machine was not seen" in text


def test_json_has_what_was_seen_and_null_for_the_machine(store: RecordStore) -> None:
    write_reports(store)
    document = json.loads((store.path / "report.json").read_text())
    jsonschema.Draft202012Validator(make_schema()).validate(document)
    assert document["host"] is None
    assert document["given"]["host"] == "db1.example"
    assert document["load_host"]["host_name"] == "load1"


def test_a_service_is_asked_by_its_console(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SERVER, service="Amazon RDS", settings_way="by a parameter group")
    *_, markdown, _ = forms(give("v1-pg18", tmp_path, server=server))
    assert "The console of Amazon RDS may show it." in markdown
    # Nobody gets a shell there.
    assert "on that machine" not in markdown
    assert "Name the server's machine" not in markdown
    assert "--server-host" not in markdown
    assert "--server-host" not in words(print_document(build_given_check(server, [])))


def test_how_to_watch_the_machine_is_told(tmp_path: Path) -> None:
    store = give("v1-pg18", tmp_path)
    page = make_first_page(compose_report(store).report)
    assert any(step.words.startswith("Name the server's machine with `--server-host`") for step in page.steps)
    *_, markdown, _ = forms(store)
    told = [line for line in markdown.splitlines() if "nobody looked at this server's machine. " in line]
    assert [line for line in told if "`--server-host DEST`" in line] == told[:2]
    assert "--server-host DEST" in words(print_document(build_given_check(SERVER, [])))


def test_obstacles_of_before_are_doubts(tmp_path: Path) -> None:
    trip = msgspec.structs.replace(SERVER.round_trip, median_s=0.03)
    server = msgspec.structs.replace(
        SERVER, round_trip=trip, active_sessions=3, timeouts_ms={"statement_timeout": 30_000}
    )
    report = compose_report(give("v1-pg18", tmp_path / "before", server=server, is_older=True)).report
    claims = {finding.claim for finding in report.findings}
    assert "Others are at work in this server." in claims
    # The data are loaded.
    assert not [claim for claim in claims if claim.startswith("A timeout of this role may end")]
    far = "Much of each transaction goes to the network: one client can do at most 4.8 of tpcb-like a second."
    assert far in claims
    # What was measured beside the load says more.
    report = compose_report(give("v1-pg18", tmp_path / "now", server=server)).report
    assert far not in {finding.claim for finding in report.findings}


def test_the_networks_share_of_a_transaction(store: RecordStore) -> None:
    """7 exchanges of at least 0.06 ms, of a mean latency of 1.2 ms."""
    for text in forms(store):
        told = " ".join(text.split())
        assert "The network takes at most 34 %" in told
        assert "7 exchanges of 0.06 ms" in told
    assert "in one this quick, that may be all" in (store.path / "report.md").read_text()
    (workload,) = json.loads((store.path / "report.json").read_text())["workloads"]
    assert workload["network"]["exchanges_count"] == 7
    assert workload["network"]["ratio"]["n"] == 2
    for trial in workload["trials"]:
        assert trial["network"]["ratio"] == pytest.approx(7 * 0.06 / trial["latency_mean_ms"])
        assert trial["network"]["median_ping_ms"] == pytest.approx(0.08)
        assert "mostly the work of both ends" in trial["time"]["absent"]["network"]


def test_a_network_that_nobody_measured_is_not_known(tmp_path: Path) -> None:
    for text in forms(give("v1-pg18", tmp_path, is_older=True)):
        assert "How much of a transaction the network takes is not known." in " ".join(text.split())
    document = json.loads((tmp_path / "v1-pg18" / "report.json").read_text())
    (network,) = [workload["network"] for workload in document["workloads"]]
    assert network["ratio"]["value"] is None
    assert "no ping ran beside the load" in network["ratio"]["reason"]


def test_a_server_on_the_loads_machine_has_no_network(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SERVER, host="/run/postgresql", is_local=True)
    for text in forms(give("v1-pg18", tmp_path, server=server)):
        assert "The network" not in text
    (workload,) = json.loads((tmp_path / "v1-pg18" / "report.json").read_text())["workloads"]
    assert workload["network"] is None


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_nothing_of_the_machine_is_a_certain_limit_and_no_experiment_runs_elsewhere(name: str, tmp_path: Path) -> None:
    report = compose_report(give(name, tmp_path)).report
    (workload,) = report.analysis.workloads
    assert workload.bottleneck is not None
    assert workload.bottleneck.certainty is not Certainty.STRONG or workload.bottleneck.resource is Resource.CLIENT
    assert not [one.confirm for one in (*report.explanations, *report.findings) if "`pgdyno " in one.confirm]
    assert all(trial.checkpoint_count is not None for trial in workload.trials)


def test_another_disk_is_imagined_without_the_first(store: RecordStore, tmp_path: Path) -> None:
    write_card(make_card(), tmp_path / "gp3.json")
    said = words(explain(store, disk=tmp_path / "gp3.json").to_terminal())
    assert "what holds the load has no bound" in said


@pytest.mark.parametrize(
    ("others", "severity", "told"),
    [
        (0, "note", "others ended hardly a transaction in other databases"),
        (40, "note", "up to about 15 "),
        (225, "warning", "up to about 200 "),
    ],
)
def test_what_other_databases_do_beside_the_load(store: RecordStore, others: int, severity: str, told: str) -> None:
    for path in (store.path / "trials").glob("*/trial.json"):
        trial = json.loads(path.read_text())
        load_s = trial["load_end_monotonic_s"] - trial["load_start_monotonic_s"]
        for name in ("xact_commit_count", "xact_rollback_count"):
            for when in ("counters_before", "counters_after"):
                trial[when][f"server_{name}"] = trial[when][name] + 1000
        # What pgdyno itself does around a load, and what others do.
        trial["counters_after"]["server_xact_commit_count"] += 15 + others * load_s
        path.write_text(json.dumps(trial))
    write_reports(store)
    report = (store.path / "report.md").read_text()
    (line,) = (line for line in report.splitlines() if "are counted for the whole server" in line)
    assert line.startswith(f"- **{severity}**")
    assert told in line


def test_another_command_takes_the_record(store: RecordStore) -> None:
    (line,) = view_records(Path()).records
    assert line.problem is None
    journal = read_journal(Path())
    assert not journal.journal.unreadable
    assert "the machine at db1.example:5432, not seen" in words(journal.to_terminal())
    record = store.read_record()
    measured = read_measured(record, store.read_trials(), name="given")
    assert measured.wal_bytes_per_s is not None
    assert "a machine that was not seen" in measured.wal_bytes_per_s.how


def test_a_price_is_of_the_machine_that_the_user_names(store: RecordStore) -> None:
    unnamed = price_records([store], hosts=(), prices=None, load=None)
    assert "the server's machine was not observed" in words(unnamed.to_terminal())
    named = price_records([store], hosts=("c7g.large",), prices=None, load=None)
    assert "it was not observed whether the measured machine is c7g.large" in words(named.to_terminal())
    (one,) = named.records
    assert (one.price.cpu_count, one.price.memory_bytes) == (None, None)
    assert one.price.workloads[0].tps_per_cpu.reason == "the server's CPUs are not known"


def test_beside_a_record_of_this_machine(store: RecordStore) -> None:
    result = compare_named([RECORDS / "v1-pg18", store.path])
    said = words(result.to_terminal())
    assert result.exit_code is ExitCode.OK
    assert "machines that were not both seen" in said
    assert "`pgdyno compare`" not in said
    declared = {one.subject: one for one in result.comparisons[0].pairs[0].differences}
    assert (declared["CPUs"].first, declared["CPUs"].other) == ("2 CPUs (AMD EPYC)", "not seen")
    assert declared["pgbench's way to the server"].other == "a round trip of 0.08 ms"
    assert declared["data to memory"].other == "scale 5, memory not seen"
    assert json.loads(result.to_json())["records"][1]["host"] is None
    assert not json.loads(result.to_json())["tiers"]


def test_beside_another_record_of_the_same_server(tmp_path: Path) -> None:
    stores = [give("v1-pg18", tmp_path / name) for name in ("a", "b")]
    with pytest.raises(SpecError, match="are one record"):
        compare_named([store.path for store in stores])
    record = json.loads((stores[1].path / "record.json").read_text())
    record["started_at"] = "2026-11-22T10:00:00+00:00"
    (stores[1].path / "record.json").write_text(json.dumps(record))
    said = words(compare_named([store.path for store in stores]).to_terminal())
    assert "servers at one address (db1.example:5432), whose machine was not seen, 29 hours apart" in said


@pytest.mark.parametrize(("factor", "is_declared"), [(1.05, False), (1.2, True), (1 / 1.2, True)])
def test_a_longer_way_to_the_server_is_to_be_declared(tmp_path: Path, factor: float, is_declared: bool) -> None:
    """Medians of one moment differ on the same way, too."""
    store = give("v1-pg18", tmp_path / "a")
    trip = msgspec.structs.replace(SERVER.round_trip, median_s=SERVER.round_trip.median_s * factor)
    other = give("v1-pg18", tmp_path / "b", server=msgspec.structs.replace(SERVER, round_trip=trip))
    record = json.loads((other.path / "record.json").read_text())
    record["started_at"] = "2026-11-22T10:00:00+00:00"
    (other.path / "record.json").write_text(json.dumps(record))
    result = compare_named([store.path, other.path])
    subjects = {one.subject for one in result.comparisons[0].pairs[0].differences}
    assert ("pgbench's way to the server" in subjects) == is_declared


def test_a_watched_machine_is_reported_as_if_its_clock_were_the_loads(tmp_path: Path) -> None:
    shares = []
    for ahead_s in (0.0, 1000.0, -1000.0):
        store = give("v1-pg18", tmp_path / str(ahead_s))
        watch(store, "v1-pg18", ahead_s=ahead_s)
        report = compose_report(store).report
        trials = [trial for workload in report.analysis.workloads for trial in workload.trials]
        shares.append([trial.shares for trial in trials])
        assert all(trial.shares["cpu_busy_ratio"] is not None for trial in trials)
        assert not any(gap.source == "os sampler" for trial in trials for gap in trial.gaps)
        write_reports(store)
        text = (store.path / "report.md").read_text()
        assert "Watched by ssh" in text
        assert "| Reached by | `ssh postgres@db1` |" in text
        assert f"{ahead_s:,.4f} s ± 0.1 ms".replace("0.0000 s", "0 s" if not ahead_s else "0.0000 s") in text
        assert "nobody looked at this server's machine" not in text
        assert "the load came from load1" in text
    for later in shares[1:]:
        assert later == [pytest.approx(of_trial, rel=1e-6) for of_trial in shares[0]]


def test_without_its_clock_a_machines_samples_have_no_time(tmp_path: Path) -> None:
    store = give("v1-pg18", tmp_path)
    watch(store, "v1-pg18", ahead_s=1000.0)
    for trial_dir in (store.path / "trials").iterdir():
        (trial_dir / SERVER_CLOCK_FILE).unlink()
    report = compose_report(store).report
    trials = [trial for workload in report.analysis.workloads for trial in workload.trials]
    assert all("cpu_busy_ratio" not in trial.shares for trial in trials)
    reasons = {gap.reason for trial in trials for gap in trial.gaps if gap.source == "os sampler"}
    assert reasons == {"the clock of the server's machine was not compared, so that its samples have no time"}


def test_a_check_says_in_plain_words_how_much_the_role_may_see() -> None:
    may = Capability(name="a", group="load", shows="", refusal=None)
    refused = Capability(name="b", group="load", shows="", refusal="no")
    document = build_given_check(msgspec.structs.replace(SERVER, capabilities=(may, may, refused)), [])
    last = document.blocks[-1]
    assert isinstance(last, Prose)
    assert last.words == f"no problem was found; 2 of the 3 sources above are open to {SERVER.role}"
