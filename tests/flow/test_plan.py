"""What is planned for this machine: the room that is assumed, the steps that are shown, and what is refused."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.conduct.cards.rates import describe_small_file, with_disk_rates
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError, SpecError
from pgdyno.flow.check import check_study
from pgdyno.flow.plan import PlanView, view_plan
from pgdyno.plan.disk import make_disk_plan
from pgdyno.plan.plan import StepKind
from pgdyno.plan.types import Machine
from pgdyno.record.device.disk_card import keep_card
from pgdyno.run.change.kernel_file import check_values
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.tunables import read_tunables
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.read import parse_study
from pgdyno.spec.study import DataSpec
from tests.disk_cards import make_card, seen_here
from tests.homes import installation_of, some_home
from tests.rows import each_row

# Far more than any disk that tests run on.
DATA = '[data]\nscale = 1_000_000\n[[workload]]\nname = "select-only"\n'


def plan(home: Path, tables: str) -> PlanView:
    study = parse_study(DATA + tables, source="study", folder=Path())
    return view_plan(study, place=Workspace.make(out=None, home=home, run_as=None))


def predict_check_s(home: Path, tables: str = "", data: str = "") -> float:
    """Return the predicted seconds of what comes before loading."""
    text = f'[data]\nscale = 1\n{data}[[workload]]\nname = "select-only"\n{tables}'
    study = parse_study(text, source="study", folder=Path())
    return view_plan(study, place=Workspace.make(out=None, home=home, run_as=None)).plan.steps[0].predicted_s


def show(view: PlanView) -> str:
    Console(file=(out := io.StringIO()), width=200).print(view.to_terminal())
    return out.getvalue()


def test_a_declared_disk_that_is_larger_than_this_one_has_its_own_room(tmp_path: Path) -> None:
    declared = (
        '[host]\ninstance = "ecs.g6e.26xlarge"\n[host.disk]\nvolume = "essd-pl3"\nsize = "32TB"\ncount = 8\nraid = 0\n'
    )
    rooms = [one for one in plan(tmp_path, declared).plan.choices if one.name == "room for data"]
    assert [one.value for one in rooms] == ["256 TB"]
    assert "variants" not in rooms[0].reason
    homes = "".join(f'[[variant]]\nname = "{name}"\nhome = "{tmp_path}/{name}"\n' for name in ("a", "b"))
    rooms = [one for one in plan(tmp_path, homes + declared).plan.choices if one.name == "room for data"]
    assert rooms[0].reason.endswith("smaller, and those of variants are not looked at")


EMULATED = """[data]
scale = {scale}
[[workload]]
name = "tpcb-like"
[host]
emulate = true
cpus = 1
memory = "256MB"
[host.disk]
volume = "gp2"
size = "{size}"
"""


def plan_emulated(home: Path, text: str = EMULATED, *, scale: int = 2, size: str = "100GB") -> PlanView:
    study = parse_study(text.format(scale=scale, size=size), source="study", folder=Path())
    return view_plan(study, place=Workspace.make(out=None, home=home, run_as=None))


def test_an_emulated_study_is_planned_for_the_machine_that_its_emulation_will_be(tmp_path: Path) -> None:
    view = plan_emulated(tmp_path)
    assert view.plan.workloads[0].clients == 4
    assert view.credits == ()
    assert plan_emulated(tmp_path, EMULATED.replace("emulate = true\n", "")).credits
    with pytest.raises(HostError, match="too little space for the emulated disks"):
        plan_emulated(tmp_path, scale=1_000_000, size="16TB")
    # Little data, but more than the declared disk has room for.
    with pytest.raises(HostError, match="does not fit on the disk"):
        plan_emulated(tmp_path, scale=100, size="1GB")
    with pytest.raises(SpecError, match="an emulation needs a disk"):
        plan_emulated(tmp_path, EMULATED.partition("[host.disk]")[0])


@pytest.mark.cluster
def test_an_emulation_loads_again_what_lies_loaded_in_the_home(tmp_path: Path) -> None:
    with some_home() as home:
        server = OwnServer(installation=installation_of(18, home), home=home)
        server.load(DataSpec(), 2, settings={}, output_dir=tmp_path, on_activity=lambda _: None)
        for text, is_loaded in ((EMULATED.replace("emulate = true\n", ""), True), (EMULATED, False)):
            steps = plan_emulated(home.root, text).plan.steps
            assert [step.predicted_s == 0.0 for step in steps if step.kind is StepKind.LOAD] == [is_loaded]


TWO = '[[variant]]\nname = "one"\n[[variant]]\nname = "two"\n'


@each_row(
    [
        ('[server]\nsettings = { work_mem = "4XB", nosuch = 1 }\n', "work_mem cannot be 4XB"),
        (TWO + 'settings = { commit_delay = "5XB" }\n', "commit_delay cannot be 5XB: variant two: '5XB' has a unit"),
        (TWO + 'sysctl = { "vm.no_such" = "10" }\n', "this kernel has no setting 'vm.no_such'"),
        ('[server]\nkind = "given"\ndsn = ""\n', "a study of a given server is planned when it runs"),
    ]
)
def test_what_run_would_refuse_at_once_is_not_planned(tables: str, words: str) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.raises(SpecError) as caught:
        plan(Path(home), tables)
    assert words in caught.value.reason


def test_what_only_another_account_may_do_is_planned_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(values: Mapping[str, str]) -> None:
        if values.get("vm.swappiness"):
            raise HostError("this account may not change vm.swappiness", hint="run as root")
        check_values(values)

    monkeypatch.setattr("pgdyno.conduct.request_check.check_values", refuse)
    of_root = TWO.replace('"one"\n', '"one"\nsysctl = { "vm.swappiness" = "10" }\n')
    text = f'[data]\nscale = 1\n[[workload]]\nname = "select-only"\n{of_root}'
    study = parse_study(text, source="study", folder=Path())
    view = view_plan(study, place=Workspace.make(out=None, home=tmp_path, run_as=None))
    assert "this account may not change vm.swappiness: run as root" in show(view)
    assert msgspec.json.decode(view.to_json())["obstacles"] == [
        "this account may not change vm.swappiness: run as root"
    ]
    with pytest.raises(SpecError, match=r"no setting 'vm\.no_such'"):
        plan(tmp_path, of_root + 'sysctl = { "vm.no_such" = "10" }\n')

    # What else a check finds, it says, too.
    text = f'[server]\nsettings = {{ fsync = "off" }}\n{text}'
    spoiled = parse_study(text, source="study", folder=Path())
    found = check_study(spoiled, home=tmp_path, is_planned=True).findings
    assert "cannot run here: this account may not change vm.swappiness" in found[0].claim
    assert "durability" in {one.rule for one in found}


def test_the_clients_of_each_part_are_shown(tmp_path: Path) -> None:
    parts = '[{ name = "simple-update", clients = 1 }, { name = "select-only", clients = 3, endpoint = "replicas" }]'
    text = f'[server]\nstandbys = 1\n[data]\nscale = 1\n[[workload]]\nname = "split"\nparts = {parts}\n'
    study = parse_study(text, source="study", folder=Path())
    shown = show(view_plan(study, place=Workspace.make(out=None, home=tmp_path, run_as=None)))
    assert "split, 4 clients (1 of simple-update at the primary, 3 of select-only at the replicas), round 1" in shown


def test_the_variant_of_each_trial_is_shown_and_nothing_twice(tmp_path: Path) -> None:
    load = '[[workload]]\nname = "2 clients"\nscripts = ["select-only"]\nclients = 2\n'
    settings = '[[variant]]\nsettings = { shared_buffers = "64MB" }\n[[variant]]\nname = "large"\n'
    study = parse_study(f"[data]\nscale = 1\n{load}{settings}", source="study", folder=Path())
    shown = show(view_plan(study, place=Workspace.make(out=None, home=tmp_path, run_as=None)))
    assert ": 2 clients, shared_buffers=64MB, round 1" in shown
    assert ": 2 clients, large, round 1" in shown


@pytest.mark.parametrize(
    ("design", "words"),
    [("live", "between rounds 2 once for all loads of a round: no"), ("paired", "between trials 2 no")],
)
def test_loads_that_take_turns_share_what_lies_between_rounds(tmp_path: Path, design: str, words: str) -> None:
    text = (
        f'[data]\nscale = 1\nrestore = "none"\n[[workload]]\nname = "select-only"\n[experiment]\ndesign = "{design}"\n'
    )
    study = parse_study(f'{text}[[sweep]]\nname = "clients"\nlevels = [1, 2]\n', source="study", folder=Path())
    shown = show(view_plan(study, place=Workspace.make(out=None, home=tmp_path, run_as=None)))
    assert f"{words} restoring, warm the caches" in " ".join(shown.split())


def test_data_that_fit_neither_disk_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="does not fit on the disk"):
        plan(tmp_path, "")
    declared = '[host]\ninstance = "ecs.g6e.26xlarge"\n[host.disk]\nvolume = "essd-pl3"\nsize = "2TB"\n'
    with pytest.raises(HostError, match="does not fit on the disk"):
        plan(tmp_path, declared)


def test_the_disk_cards_that_a_run_measures_are_part_of_the_time(tmp_path: Path) -> None:
    home, host = tmp_path / "home", "[host]\ncpus = 2\n"
    disks = 'emulate = true\n[host.disk]\nvolume = "gp3"\nsize = "4GB"\n'
    whole = f'{host}memory = "4GB"\n'
    emulated, with_wal = f"{whole}{disks}", f'{whole}{disks}[host.wal_disk]\nvolume = "gp3"\nsize = "2GB"\n'
    own_s, card_s = predict_check_s(home), make_disk_plan(is_quick=True, free_bytes=2**40, seed=1).expected_s
    assert predict_check_s(home, host) - own_s == pytest.approx(card_s, abs=3)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as wal:
        more = int(read_tunables(tmp_path, Path(wal)).wal_disk is not None)
        with_wal_s = predict_check_s(home, host, f'wal_home = "{wal}"\n')
        assert with_wal_s - own_s == pytest.approx((1 + more) * card_s, abs=5)
        keep_card(make_card(**seen_here(tmp_path), made_at=local_now()), home)
        assert predict_check_s(home, host) == own_s, "a card of today is used"
        assert predict_check_s(home, host, f'wal_home = "{wal}"\n') - own_s == pytest.approx(more * card_s, abs=3)
    for tables, count in ((emulated, 1), (with_wal, 2)):
        assert predict_check_s(home, tables) - own_s == pytest.approx(count * card_s, abs=5), "it is a new disk"


def test_rates_of_a_small_test_file_are_told_where_data_are_read_from_the_disk(tmp_path: Path) -> None:
    facts = {"version_major": 18, "cpu_count": 2, "memory_bytes": 20 * 10**9, "disk_free_bytes": 10**12}
    rows = [
        (
            "more data than memory holds",
            512 * 2**20,
            31 * 10**9,
            "disk --home /h --file-size 14GB` measures it for data of 28.9 GB",
        ),
        ("memory holds them", 512 * 2**20, 13 * 10**9, None),
        ("a large file", 4 * 2**30, 31 * 10**9, None),
        ("declared rates", None, 31 * 10**9, None),
    ]
    for name, file_bytes, data_bytes, said in rows:
        found = describe_small_file(Machine(**facts, rates_file_bytes=file_bytes), data_bytes, Path("/h"))
        assert (found is None) if said is None else (said in (found or "")), name
    home = tmp_path / "home"
    keep_card(make_card(**seen_here(tmp_path), made_at=local_now(), file_bytes=512 * 2**20), home)
    study = parse_study('[data]\nscale = 1\n[[workload]]\nname = "select-only"\n', source="study", folder=Path())
    machine = with_disk_rates(Machine(**facts), study, home)
    assert machine.rates_file_bytes == 512 * 2**20
    assert machine.write_bytes_per_s == pytest.approx(250e6, rel=0.05)
    view = view_plan(study, place=Workspace.make(out=None, home=home, run_as=None))
    assert json.loads(view.to_json())["caution"] is None
    assert "they may" in show(msgspec.structs.replace(view, caution="they may"))
