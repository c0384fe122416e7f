"""What an experiment about a record needs of the machine that pgdyno is called on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.cli.terminal.display import Display
from pgdyno.conduct.study import create_record
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import SpecError
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.intervention import Intervention
from pgdyno.flow import report as flow_report
from pgdyno.flow.confirm import there
from pgdyno.flow.confirm.experiment import ConfirmOptions, Experiment, Subject, _compose
from pgdyno.flow.report import compose_report
from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.far import FarRecord, write_far
from pgdyno.record.store import RecordStore
from pgdyno.record.types import ServerFacts
from pgdyno.spec.hosts import HostEntry
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import SettingValue
from tests.given import SERVER, give
from tests.records import WRITING, copy_record, edit


def ask_mode(store: RecordStore) -> Subject:
    """Return the question of the query mode on a record's first load."""
    return Subject(
        workload=compose_report(store).report.analysis.workloads[0],
        resource="CPU",
        variant=None,
        intervention=Intervention(varied="mode", levels=("prepared", "simple"), expects=VerdictKind.SLOWER, why=""),
        least_ratio=0.0,
    )


def test_a_command_of_the_machine_there_need_not_exist_here(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "mine"))
    study = store.path / "study.toml"
    command = 'restore = "command"\nrestore_command = "/of/that/machine/restore it"\n'
    study.write_text(study.read_text().replace("[data]\n", f"[data]\n{command}"))
    subject = ask_mode(store)
    wishes = ConfirmOptions(minutes=None, duration=None)
    with pytest.raises(SpecError, match="there is no program /of/that/machine/restore"):
        _compose(store, subject, wishes)
    write_far(store.path, FarRecord(ssh="db1", folder=None, record="mine"))
    assert _compose(store, subject, wishes).data.restore_command == "/of/that/machine/restore it"


def test_what_a_user_cannot_mean_is_refused_by_its_option(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "mine"))
    for minutes in (0.01, -1.0, float("nan"), 30_000.0):
        with pytest.raises(SpecError, match=rf"^--minutes {minutes:g} is not within 0.5 to "):
            _compose(store, ask_mode(store), ConfirmOptions(minutes=minutes, duration=None))
    with pytest.raises(SpecError, match=r"^--duration 1\.5s: "):
        _compose(store, ask_mode(store), ConfirmOptions(minutes=None, duration="1.5s"))


def test_the_load_comes_from_as_many_load_hosts_as_it_did(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "mine"))
    workload = compose_report(store).report.analysis.workloads[0]
    alone = msgspec.structs.replace(workload, load=msgspec.structs.replace(workload.load, load_hosts=1))

    def list_hosts(varied: str, levels: tuple[SettingValue, SettingValue]) -> list[int | None]:
        intervention = Intervention(varied=varied, levels=levels, expects=VerdictKind.SLOWER, why="")
        subject = Subject(workload=alone, resource="CPU", variant=None, intervention=intervention, least_ratio=0.0)
        study = _compose(store, subject, ConfirmOptions(minutes=None, duration=None))
        assert [one.title for one in study.variant] == [f"{varied}={level}" for level in levels]
        return [one.load_hosts for one in study.variant]

    assert list_hosts("mode", ("prepared", "simple")) == [1, 1]
    assert list_hosts("load_hosts", (1, 2)) == [1, 2]


@pytest.mark.parametrize("server", [{}, {"kind": "given", "dsn": "host=db1"}])
def test_the_load_runs_the_scripts_of_the_variant_that_is_explained(tmp_path: Path, server: dict[str, object]) -> None:
    scripts = [tmp_path / name / "pay.sql" for name in ("one", "other")]
    for script in scripts:
        script.parent.mkdir()
        script.write_text(f"SELECT '{script.parent.name}';\n")
    variants = [{"name": script.parent.name, "scripts": [str(script), "select-only@2"]} for script in scripts]
    raw = {
        "server": server,
        "data": {"scale": 1},
        "workload": [{"name": "tpcb-like", "clients": 2}],
        "variant": variants,
    }
    study = make_study(raw, source="a test", folder=Path("/"))
    machine = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
    plan = plan_study(study, machine)
    store = RecordStore(copy_record(tmp_path / "mine"))
    workload = compose_report(store).report.analysis.workloads[0]
    create_record(
        made := RecordStore(tmp_path / "made"), msgspec.structs.replace(store.read_record(), study=study, plan=plan)
    )
    copies = made.keep_scripts(plan)
    for variant, load, script in zip(plan.experiment.variants, plan.loads, scripts, strict=True):
        subject = Subject(
            workload=msgspec.structs.replace(workload, load=load),
            resource="CPU",
            variant=variant,
            intervention=Intervention(varied="mode", levels=("prepared", "simple"), expects=VerdictKind.SLOWER, why=""),
            least_ratio=0.0,
        )
        asked = _compose(made, subject, ConfirmOptions(minutes=None, duration=None))
        assert asked.workload[0].weighted_scripts == ((str(copies[str(script)]), 1), ("select-only", 2))
        assert plan_study(asked, machine).loads[0].scripts == asked.workload[0].weighted_scripts


def test_the_postgresql_of_the_experiment_is_that_of_the_variant_that_is_explained(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "mine"))
    record = store.read_record()
    older = msgspec.structs.replace(record.server, version="15.18", version_num=150018)
    record = msgspec.structs.replace(record, other_servers={"old": older})

    def server_of(variant: Variant | None) -> ServerFacts:
        intervention = Intervention(varied="jit", levels=("on", "off"), expects=VerdictKind.SLOWER, why="")
        workload = compose_report(store).report.analysis.workloads[0]
        subject = Subject(
            workload=workload, resource="CPU", variant=variant, intervention=intervention, least_ratio=0.0
        )
        place = Workspace.make(home=tmp_path, out=None, run_as=None)
        return Experiment(store, record, subject, record.study, place, tmp_path / "out").record_there.server

    assert server_of(Variant(name="old", server=ServerSpec())) == older
    assert server_of(Variant(name="new", server=ServerSpec())) == server_of(None) == record.server


def test_confirm_is_suggested_only_where_it_reaches_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "`pgdyno on db1 compare`: mode=simple should be slower."
    finding = Finding(severity=Severity.NOTE, rule="limits", claim="", evidence="", advice="", confirm=asked)
    monkeypatch.setattr(flow_report, "explain_study", lambda *_: (finding,))
    store = give(WRITING, tmp_path, server=SERVER)
    (told,) = compose_report(store).report.explanations
    assert told.confirm == f"`pgdyno explain {store.path} --confirm`: mode=simple should be slower."
    edit(store.path / "record.json", lambda record: record.update(command=["pgdyno", "on", "db1", "bench"]))
    (told,) = compose_report(store).report.explanations
    assert told.confirm == asked


def test_the_experiment_runs_by_the_python_that_the_study_names_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"role": "server", "ssh": "db1", "python": "/opt/python3.12"}
    store = RecordStore(
        copy_record(tmp_path / "mine", study=lambda told: told["study"].update(hosts={"server": named}))
    )
    record = store.read_record()
    subject = ask_mode(store)
    wishes = ConfirmOptions(minutes=None, duration=None)
    study, place = _compose(store, subject, wishes), Workspace.make(home=tmp_path, out=None, run_as=None)
    asked = Experiment(store, record, subject, study, place, tmp_path / "out")
    monkeypatch.setattr(there, "compose_experiment", lambda *_, **__: asked)
    went: list[HostEntry] = []
    monkeypatch.setattr(there, "run_over", lambda entry, *_, **__: went.append(entry))
    ui = Display(quiet=True, assume_yes=True)
    for ssh in ("db1", "db2"):
        far = FarRecord(ssh=ssh, folder=None, record="mine")
        there.confirm_over(store, far, workload=None, wishes=wishes, place=place, ui=ui, before_output=lambda: None)
    assert [(one.ssh, one.python) for one in went] == [("db1", "/opt/python3.12"), ("db2", None)]
