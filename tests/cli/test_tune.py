"""`pgdyno tune` as a user runs it: what real servers make of its files, what it applies, and what it refuses."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import HostError, PgdynoError, SpecError
from pgdyno.explain.finding import Finding
from pgdyno.facts.gucs import same_value
from pgdyno.flow.apply import AppliedTuning, apply
from pgdyno.flow.restore import restore_host
from pgdyno.flow.tune import Form, TuneRequest, TuneResult, tune
from pgdyno.plan.plan import Plan
from pgdyno.report.documents.tuning import TuneDocument
from pgdyno.report.sections.tuning.view import Tried, list_changes
from pgdyno.run.change.journal import own_journal
from pgdyno.spec.study import ServerKind, ServerSpec
from pgdyno.tune.subject import LoadHints
from pgdyno.tune.types import Origin, Target
from tests.cli.program import run_here
from tests.records import copy_record
from tests.rows import check_rows
from tests.tools.pgcluster import PORT, Cluster, running

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# So that servers of tests stay small, whatever machine this is.
SMALL = {"shared_buffers": "64MB", "maintenance_work_mem": "32MB"}


def run_tune(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(["tune", *arguments], columns=80, NO_COLOR="1")


def question(**others: Any) -> TuneRequest:
    facts: dict[str, Any] = {
        "server": None,
        "data_dir": None,
        "host": None,
        "record": None,
        "wishes": LoadHints(),
        "fixed": {},
        "home": Path("/var/tmp"),
        "run_as": None,
        **others,
    }
    return TuneRequest(**facts)


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        yield made


def test_what_it_prints() -> None:
    done = run_tune("--json", "--workload", "oltp-write", "--dataset", "20GB", "--set", "work_mem=9MB")
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout, type=TuneDocument)
    subject = document.tuning.subject
    assert (subject.major, subject.dataset.value, subject.dataset.origin) == (18, 20 * 1024**3, Origin.DECLARED)
    assert document.tried is Tried.VALUES
    changes = {change.name: change for change in document.changes}
    assert (changes["work_mem"].value, changes["work_mem"].now) == ("9MB", "4MB")
    assert int(changes["vm.nr_hugepages"].value) > 0
    assert all(one.reason and one.source for one in document.tuning.settings)


def test_the_forms() -> None:
    told = run_tune("--set", "work_mem=9MB")
    assert told.returncode == 0, told.stderr
    assert "\nNext steps, as options of the same command\n" in told.stdout
    assert all(line == line.rstrip() for line in told.stdout.splitlines())
    assert "\x1b" not in told.stdout
    explained = run_tune("--explain", "work_mem")
    assert explained.stdout.startswith("work_mem = ")
    assert "  source: " in explained.stdout
    assert "vm.nr_hugepages = " in run_tune("--form", "sysctl").stdout
    server_only = run_tune("--no-kernel", "--set", "log_line_prefix=%m ").stdout
    assert "log_line_prefix" in server_only
    assert "shared_buffers" in server_only
    assert "sysctl" not in server_only
    assert "vm." not in server_only


def test_a_topology() -> None:
    around = ("--standbys", "2", "--pooler", "--connections", "400", "--host", "r8g.large")
    told = run_tune(*around)
    assert told.returncode == 0, told.stderr
    assert "max_slot_wal_keep_size" in told.stdout
    assert "hot_standby_feedback" in told.stdout, "with its trade, also where nothing changes"
    assert "synchronous_standby_names and synchronous_commit are left to you" in told.stdout.replace("\n  ", " ")
    file = run_tune(*around, "--form", "pgbouncer").stdout
    assert "\nmax_client_conn = 440\n" in file
    assert "\n[" not in file, "PgBouncer resets a section that begins once more"


REFUSED = [
    (("--form", "pgbouncer"), "--form pgbouncer is a file for a pooler", "add --pooler"),
    (("--standbys", "1000"), "--standbys 1000: not within 0 to 100", "0 derives for the server alone"),
    (("--pool-mode", "statement"), "--pool-mode statement: not one of transaction, session", "choose one"),
    (("--workload", "oltp-wirte"), "--workload oltp-wirte: not one of", "did you mean oltp-write?"),
    (("--form", "yaml"), "--form yaml: not one of", "choose one of them"),
    (("--dataset", "20"), "--dataset 20: it has no unit", "for example --dataset 20GB"),
    (("--dataset", "1e99GB"), "--dataset 1e99GB: not above 0, or implausibly large", "for example --dataset 20GB"),
    (("--recovery", "5 parsecs"), "--recovery 5 parsecs", "for example --recovery 5min"),
    (("--connections", "0"), "--connections 0: not a number above 0", "leave --connections out to have it chosen"),
    (("--host", "r8g.2xlarge", "--pgdata", "/x"), "name two machines", "leave one of them out"),
    (("--restart",), "--restart needs --apply", "add --apply"),
    (("--form", "sysctl", "--no-kernel"), "--form sysctl is a file for the kernel", "leave --no-kernel out"),
    (("--apply",), "--apply needs a server to apply to", "name yours with --pgdata DIR"),
    (("--form", "conf", "--explain", "work_mem"), "--form conf does not go with --explain", "leave one of them out"),
    (
        ("--form", "json", "--explain", "work_mem"),
        "--explain work_mem does not go with --form json",
        "leave one of them out",
    ),
    (("--json", "--explain", "work_mem"), "--explain work_mem does not go with --json", "leave one of them out"),
    (("--form", "conf", "--json"), "--form conf does not go with --json", "leave one of them out"),
    (("--apply", "--form", "json"), "--form json does not go with --apply", "leave one of them out"),
    (("--apply", "--explain", "work_mem"), "--explain work_mem does not go with --apply", "leave one of them out"),
    (("--explain", "shared_bufers"), "nothing is known of shared_bufers", "did you mean shared_buffers?"),
]


def test_what_it_does_not_take() -> None:
    def check(row: tuple[tuple[str, ...], str, str]) -> None:
        arguments, words, hint = row
        done = run_here(["tune", *arguments])
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert hint in done.stderr

    check_rows(REFUSED, check)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"host": "r8g.2xlarg"}, SpecError, "r8g.2xlarge"),
        ({"host": "no-such.toml"}, SpecError, "cannot read the host file"),
        ({"fixed": {"shared_bufers": "1GB"}}, SpecError, "did you mean shared_buffers"),
        ({"fixed": {"shared_buffers": "20000GB"}}, SpecError, "shared_buffers"),
        ({"fixed": {"Port": "5433"}}, SpecError, "Port is not for pgdyno to change\nit decides where the server is"),
        ({"fixed": {"primary_conninfo": "password=x"}}, SpecError, "it may hold a password"),
        ({"fixed": {"wal_level": "minimal"}}, SpecError, "max_wal_senders"),
        ({"data_dir": Path("/nowhere")}, SpecError, "no data directory"),
        ({"record": Path("/nowhere")}, SpecError, "/nowhere"),
        ({"server": ServerSpec(kind=ServerKind.LOCAL, bindir="/etc")}, SpecError, "there is no postgres"),
    ],
)
def test_what_cannot_be(asked: dict[str, Any], error: type[PgdynoError], words: str) -> None:
    with pytest.raises(error) as raised:
        tune(question(**asked), form=Form.TABLE)
    assert words in f"{raised.value.fact}\n{raised.value.detail}\n{raised.value.hint}"


def test_a_sum_that_does_not_fit_is_told() -> None:
    with pytest.raises(SpecError) as raised:
        tune(question(host="r8g.2xlarge", fixed={"shared_buffers": "63GB"}), form=Form.TABLE)
    assert "64 GB" in raised.value.fact + raised.value.detail
    assert "shared_buffers" in raised.value.detail
    assert "connections" in raised.value.detail, "every line of the sum"


def test_a_machine_that_is_not_here() -> None:
    wishes, fixed = LoadHints(dataset_bytes=5e11), {"io_method": "io_uring"}
    tuned = tune(question(host="r8g.2xlarge", wishes=wishes, fixed=fixed), form=Form.CONF)
    assert "io_method" in tuned.view.unchecked, "distributions have it, and pgdyno's own PostgreSQL has not"
    assert tuned.view.machine == "r8g.2xlarge"
    assert tuned.view.tried is Tried.VALUES, "this machine has not that memory"
    assert tuned.view.tuning.subject.disk.free_bytes.value == 1000 * 1024**3, "room for the data and as much again"
    values = {one.name: one.value for one in tuned.view.tuning.settings}
    # Exactly what a server with these settings says, of pages of 2 MB.
    assert int(values["vm.nr_hugepages"]) * 2 * 1024**2 > 10 * 1024**3
    assert tuned.view.now == {}


def test_a_machine_that_is_not_here_has_room_for_the_data_of_the_record(tmp_path: Path) -> None:
    record = copy_record(tmp_path / "r", study=lambda study: study["dataset"].update(total_bytes=450 * 1024**3))
    tuned = tune(question(host="r8g.2xlarge", record=record), form=Form.TABLE)
    subject = tuned.view.tuning.subject
    assert (subject.dataset.value, subject.disk.free_bytes.value) == (450 * 1024**3, 900 * 1024**3)


@pytest.mark.parametrize(
    ("options", "expected"), [((), "zstd"), (("--server", "15"), "zstd"), (("--server", "embedded"), "pglz")]
)
def test_a_machine_that_is_not_here_has_the_build_of_a_distribution(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    # Its disk writes 60 MB/s, a third of which is less than the WAL of eight CPUs.
    host = tmp_path / "host.toml"
    host.write_text('cpus = 8\nmemory = "32GB"\n[disk]\nkind = "network-ssd"\nwrite_mb_s = 60\n')
    done = run_tune("--json", "--host", str(host), "--workload", "oltp-write", *options)
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout, type=TuneDocument)
    tuning = document.tuning
    values = {one.name: one.value for one in tuning.settings}
    # pgdyno's own PostgreSQL has neither lz4 nor zstd, and Debian's has both.
    assert document.unchecked == (() if options else ("wal_compression",))
    lacked = tuning.subject.missing_values.get("wal_compression", ())
    assert (values.get("wal_compression", "off"), bool(lacked)) == (expected, expected == "pglz")


@pytest.mark.cluster
def test_a_machine_elsewhere_gets_as_many_huge_pages_as_the_server_asks_for() -> None:
    def count(*own: str) -> int:
        settings = tune(question(host="r8g.2xlarge", fixed=dict(each.split("=") for each in own)), form=Form.TABLE)
        (pages,) = (one for one in settings.view.tuning.settings if one.name == "vm.nr_hugepages")
        return int(pages.value)

    assert count("huge_page_size=1GB") == -(-count() // 512)


@pytest.mark.cluster
def test_a_server_takes_the_fragment_and_the_script(cluster: Cluster) -> None:
    # The server's log is its own matter. Room for WAL is that of a disk which other tests fill and empty meanwhile.
    logged = {"log_line_prefix": "%m it's %u", "log_destination": "csvlog"}
    asked = question(data_dir=cluster.data, fixed={**SMALL, **logged, "max_wal_size": "2GB"})
    conf = tune(asked, form=Form.CONF)
    assert conf.view.tried is Tried.STARTED
    wanted = {one.name: one.value for one in conf.view.tuning.of(Target.POSTGRESQL)}
    text = conf.to_text()
    assert text is not None
    write_as(cluster, cluster.data / "pgdyno.conf", text)
    before = (cluster.data / "postgresql.conf").read_text()
    write_as(cluster, cluster.data / "postgresql.conf", f"{before}\ninclude 'pgdyno.conf'\n")
    restart(cluster)
    assert (
        cluster.sql("SELECT string_agg(name || ': ' || error, ', ') FROM pg_file_settings WHERE error IS NOT NULL")
        == ""
    )
    assert_in_force(cluster, wanted)
    assert differing(asked) == [], "tuned again, nothing is left to change"

    write_as(cluster, cluster.data / "postgresql.conf", before)
    restart(cluster)
    script = tune(asked, form=Form.ALTER_SYSTEM).to_text()
    assert script is not None
    write_as(cluster, cluster.root / "pgdyno.sql", script)
    where = ("-h", str(cluster.root), "-p", str(PORT), "-U", "postgres", "-d", "postgres")
    cluster.run("psql", "-X", "-v", "ON_ERROR_STOP=1", *where, "-f", str(cluster.root / "pgdyno.sql"))
    restart(cluster)
    assert_in_force(cluster, wanted)
    cluster.sql("ALTER SYSTEM RESET ALL")
    restart(cluster)


@pytest.mark.cluster
def test_what_the_server_has_counts_is_put_right_or_told(cluster: Cluster) -> None:
    own = {
        "temp_buffers": "2000GB", "hash_mem_multiplier": "100", "autovacuum_max_workers": "30",
        "vacuum_cost_limit": "10", "log_checkpoints": "off", "synchronous_commit": "off",
    }  # fmt: skip
    for name, value in own.items():
        cluster.sql(f"ALTER SYSTEM SET {name} = '{value}'")
    restart(cluster)
    asked = question(data_dir=cluster.data, fixed=SMALL)
    try:
        with pytest.raises(SpecError, match="in the worst case") as refused:
            tune(asked, form=Form.TABLE)
        fixed = {**SMALL, "temp_buffers": "9MB"}
        tuning = tune(msgspec.structs.replace(asked, fixed=fixed), form=Form.DIFF).view.tuning
        cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
        programs = ServerSpec(kind=ServerKind.LOCAL, bindir=str(cluster.bin_directory))
        down = tune(msgspec.structs.replace(asked, server=programs, fixed=fixed), form=Form.DIFF).view.tuning
    finally:
        cluster.start()
        cluster.sql("ALTER SYSTEM RESET ALL")
        restart(cluster)
    assert " × 1.95 TB" in refused.value.detail
    assert "64 MB  shared_buffers" in refused.value.detail
    assert "temp_buffers = 2000GB, hash_mem_multiplier = 100 counts, and --set replaces it" in refused.value.hint
    for one in (tuning, down):
        values = one.values_of(Target.POSTGRESQL)
        assert (values["log_checkpoints"], values["autovacuum_max_workers"]) == ("on", "3")
        assert int(values["autovacuum_vacuum_cost_limit"]) >= 200
        assert "hash_mem_multiplier" not in values
        lines = {share.what: share.how for share in one.memory}
        assert lines["sorts and hashes"].endswith(" × 100")
        assert lines["temporary tables"].endswith(" × 9 MB")
        assert any(note.startswith("synchronous_commit = off, which the server keeps") for note in one.notes)


# How settings are applied is tested on both versions, by tests/run/test_apply.py.
@pytest.mark.cluster
@pytest.mark.parametrize("cluster", [15], indirect=True)
def test_apply_and_restore(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the server's own account, which may change no kernel: this machine stays as it is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(cluster.root / "state"))
    monkeypatch.setenv("HOME", str(cluster.root))
    shutil.chown(cluster.root, cluster.user.uid, cluster.user.gid)
    auto = cluster.data / "postgresql.auto.conf"
    before = auto.read_bytes()
    asked = question(data_dir=cluster.data, fixed=SMALL)
    # Once as ourselves: modules that are loaded late may lie where nobody else may look.
    wanted = tune(asked, form=Form.CONF).view.tuning.of(Target.POSTGRESQL)
    names = {one.name for one in wanted}

    with pytest.raises(SpecError, match="nothing was applied"):
        apply(asked, may_restart=False, ui=Answering(says=False), show=lambda tuned: None)
    assert auto.read_bytes() == before

    first = as_user(cluster, lambda: applied(asked, may_restart=False))
    assert first["applied"]["waiting"] == ["shared_buffers"]
    assert set(first["applied"]["settings"]) <= {name.lower() for name in names}
    assert first["applied"]["sysctls"] == {}
    assert first["applied"]["left_out"][0]["reason"] == "changing kernel settings needs root"
    assert cluster.sql("SHOW random_page_cost") == next(one.value for one in wanted if one.name == "random_page_cost")

    second = as_user(cluster, lambda: applied(asked, may_restart=True))
    assert second["applied"]["was_restarted"]
    assert cluster.sql("SHOW shared_buffers") == "64MB"

    as_user(cluster, lambda: restore_host(own_journal(), may_restart=True).to_json())
    assert cluster.sql("SHOW shared_buffers") == "128MB"
    assert auto.read_bytes() == before


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", [18], indirect=True)
def test_the_kernel_is_left_alone_and_the_server_still_starts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(cluster.root / "state"))
    monkeypatch.setenv("HOME", str(cluster.root))
    shutil.chown(cluster.root, cluster.user.uid, cluster.user.gid)
    programs = ServerSpec(kind=ServerKind.LOCAL, bindir=str(cluster.bin_directory))
    asked = question(data_dir=cluster.data, server=programs, fixed=SMALL, wishes=LoadHints(leaves_kernel=True))
    assert {one.target for one in tune(asked, form=Form.CONF).view.tuning.settings}.isdisjoint(
        {Target.SYSCTL, Target.SYSFS}
    )
    # As whoever runs this, who may be root.
    all_of_it = msgspec.structs.replace(asked, wishes=LoadHints())
    questions = []
    for each in (all_of_it, asked):
        ui = Answering(says=False)
        with pytest.raises(SpecError, match="nothing was applied"):
            apply(each, may_restart=False, ui=ui, show=lambda tuned: None)
        questions.append(ui.asked)
    assert re.fullmatch(
        r"apply \d+ settings of the server; waiting for a restart: 1; the kernel stays as it is\?", questions[1]
    )
    is_kernel_ours = os.geteuid() == 0 and tune(all_of_it, form=Form.TABLE).view.tuning.of(Target.SYSCTL)
    assert ("of the kernel, which --no-kernel leaves alone" in questions[0]) is bool(is_kernel_ours)
    cluster.sql("ALTER SYSTEM SET huge_pages = 'on'")
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    try:
        done = as_user(cluster, lambda: applied(asked, may_restart=False))
        assert (done["applied"]["left_out"], done["applied"]["sysctls"]) == ([], {})
        # With `on` it would not come up where this machine has no such pages.
        cluster.start()
        assert cluster.sql("SHOW shared_buffers") == "64MB"
    finally:
        as_user(cluster, lambda: restore_host(own_journal(), may_restart=False).to_json())
        cluster.sql("ALTER SYSTEM RESET ALL")
        restart(cluster)
        as_user(cluster, lambda: restore_host(own_journal(), may_restart=False).to_json())
    assert as_user(cluster, lambda: restore_host(own_journal()).to_json())["undone"] == []


@needs_root
@pytest.mark.cluster
@pytest.mark.parametrize("cluster", [15], indirect=True)
def test_without_rights(cluster: Cluster) -> None:
    nobody = pwd.getpwnam("nobody")
    tune(question(data_dir=cluster.data, fixed=SMALL), form=Form.TABLE)

    def ask() -> bytes:
        try:
            tune(question(data_dir=cluster.data), form=Form.TABLE)
        except HostError as error:
            return json.dumps([error.fact, error.hint]).encode()
        return b"[]"

    fact, hint = json.loads(in_child(ask, uid=nobody.pw_uid, gid=nobody.pw_gid))
    assert fact == f"this account may not look into {cluster.data}"
    assert hint == "run as root or as the server's account"


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", [18], indirect=True)
def test_a_server_that_is_down_and_one_that_lets_nobody_in(cluster: Cluster) -> None:
    programs = ServerSpec(kind=ServerKind.LOCAL, bindir=str(cluster.bin_directory))
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    try:
        down = tune(question(data_dir=cluster.data, server=programs, fixed=SMALL), form=Form.TABLE).view
    finally:
        cluster.start()
    assert "not running" in down.server
    assert down.now_of == "what the server's files say"
    hba = cluster.data / "pg_hba.conf"
    before = hba.read_text()
    write_as(cluster, hba, "local all all reject\n")
    restart(cluster, is_answering=False)
    try:
        closed = tune(question(data_dir=cluster.data, fixed=SMALL), form=Form.TABLE).view
    finally:
        write_as(cluster, hba, before)
        restart(cluster)
    assert "did not let us in" in closed.server
    assert any("pg_hba.conf rejects" in one.reason for one in closed.unseen)


class Answering:
    """Whoever sits at the terminal; implements `flow.ui.Ui`."""

    def __init__(self, *, says: bool) -> None:
        self._says = says
        self.asked = ""

    def confirm(self, question: str, *, default: bool) -> bool:
        assert question.startswith("apply ")
        assert not default
        self.asked = question
        return self._says

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float) -> None: ...
    def announce(self, lines: Sequence[str], *, total_s: float) -> None: ...
    def begin_step(self, title: str, *, predicted_s: float) -> None: ...
    def show_activity(self, text: str) -> None: ...
    def show_load(self, *, tps: float, latency_ms: float | None) -> None: ...
    def show_verdicts(self, text: str) -> None: ...
    def end_step(self, result: str) -> None: ...
    def say(self, text: str) -> None: ...
    def show_finding(self, finding: Finding) -> None: ...


def applied(asked: TuneRequest, *, may_restart: bool) -> bytes:
    shown: list[TuneResult] = []
    done: AppliedTuning = apply(asked, may_restart=may_restart, ui=Answering(says=True), show=shown.append)
    assert shown[0].form is Form.DIFF
    return done.to_json()


def as_user(cluster: Cluster, work: Callable[[], bytes]) -> dict[str, Any]:
    said = work() if cluster.user.is_self else in_child(work, uid=cluster.user.uid, gid=cluster.user.gid)
    document: dict[str, Any] = json.loads(said)
    return document


def in_child(work: Callable[[], bytes], *, uid: int, gid: int) -> bytes:
    """What another account gets; in a child, since there is no way back."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            content = work()
        except BaseException as exc:  # noqa: BLE001 - it must end here whatever happens
            content = repr((exc, getattr(exc, "detail", ""))).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return content


def write_as(cluster: Cluster, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    shutil.chown(path, cluster.user.uid, cluster.user.gid)


def restart(cluster: Cluster, *, is_answering: bool = True) -> None:
    cluster.stop()
    cluster.start()
    assert not is_answering or cluster.sql("SELECT 1") == "1"


def assert_in_force(cluster: Cluster, wanted: dict[str, str]) -> None:
    names = ", ".join(f"current_setting('{name}')" for name in wanted)
    shown = json.loads(cluster.sql(f"SELECT json_build_array({names})"))
    for (name, value), text in zip(wanted.items(), shown, strict=True):
        assert same_value(name, text, value, cluster.version_major), f"{name}: {text}, not {value}"


def differing(asked: TuneRequest) -> list[str]:
    changes = list_changes(tune(asked, form=Form.DIFF).view)
    return [one.name for one in changes if one.target is Target.POSTGRESQL and not one.is_same]
