"""What `resume` shows of a record's plan before it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec

from pgdyno.conduct.study import reopen_record
from pgdyno.conduct.ui import Ui
from pgdyno.plan.plan import Plan, plan_study
from pgdyno.plan.types import Machine
from pgdyno.record.store import RecordStore
from pgdyno.spec.read import make_study
from tests.record.test_store import make_record

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=2**34, disk_free_bytes=2**36)


class Shown:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.plans: list[tuple[Plan, Plan | None]] = []
        self.lines: list[str] = []

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float, scaling: Plan | None) -> None:
        assert record_dir
        assert remaining_s > 0
        self.plans.append((plan, scaling))

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_record_whose_sweep_one_variant_cannot_run_goes_on(tmp_path: Path) -> None:
    """Earlier versions began such studies, and another variant may win."""
    variants = [{"name": "stock"}, {"name": "few", "settings": {"max_connections": 20}}]
    raw: dict[str, object] = {
        "workload": [{"name": "tpcb-like"}],
        "trials": {"duration": "4s"},
        "variant": variants,
        "scaling": {"clients": [1, 16]},
    }
    study = make_study(raw, source="test", folder=tmp_path)
    store = RecordStore(tmp_path / "record")
    store.create(msgspec.structs.replace(make_record(), study=study, plan=plan_study(study, MACHINE)), study_toml="")
    shown = Shown()
    reopen_record(store, MACHINE, cast("Ui", shown))
    ((_, scaling),) = shown.plans
    assert scaling is None
    assert any("if few wins" in line for line in shown.lines)
