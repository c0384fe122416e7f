"""The room that a plan assumes: this disk's, or that of a declared disk that is not here."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError
from pgdyno.flow.plan import PlanView, view_plan
from pgdyno.spec.read import parse_study

# Far more than any disk that tests run on.
DATA = '[data]\nscale = 1_000_000\n[[workload]]\nname = "select-only"\n'


def plan(home: Path, tables: str) -> PlanView:
    study = parse_study(DATA + tables, source="study", folder=Path())
    return view_plan(study, place=Workspace.make(out=None, home=home, run_as=None))


def show(view: PlanView) -> str:
    Console(file=(out := io.StringIO()), width=200).print(view.to_terminal())
    return out.getvalue()


def test_a_declared_disk_that_is_larger_than_this_one_has_its_own_room(tmp_path: Path) -> None:
    declared = (
        '[host]\ninstance = "ecs.g6e.26xlarge"\n[host.disk]\nvolume = "essd-pl3"\nsize = "32TB"\ncount = 8\nraid = 0\n'
    )
    view = plan(tmp_path, declared)
    assert [one.value for one in view.plan.choices if one.name == "room for data"] == ["256 TB"]


def test_the_clients_of_each_part_are_shown(tmp_path: Path) -> None:
    parts = '[{ name = "simple-update", clients = 1 }, { name = "select-only", clients = 3, endpoint = "replicas" }]'
    text = f'[server]\nstandbys = 1\n[data]\nscale = 1\n[[workload]]\nname = "split"\nparts = {parts}\n'
    study = parse_study(text, source="study", folder=Path())
    shown = show(view_plan(study, place=Workspace.make(out=None, home=tmp_path, run_as=None)))
    assert "split, 4 clients (1 of simple-update at the primary, 3 of select-only at the replicas), round 1" in shown


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
