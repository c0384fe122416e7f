"""What is refused before the machine is checked: nothing that a plan accepts where the data are loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.request_check import check_request
from pgdyno.conduct.workspace import Workspace, read_machine
from pgdyno.errors import SpecError
from pgdyno.plan.plan import plan_study
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study

SCALES = (2, 500)


@pytest.mark.parametrize(
    "tables",
    [{"variant": [{"scale": scale} for scale in SCALES]}, {"sweep": [{"name": "scale", "levels": list(SCALES)}]}],
    ids=["variants", "sweep"],
)
def test_minutes_that_a_plan_accepts_for_loaded_data_are_not_refused(
    tmp_path: Path, tables: dict[str, list[object]]
) -> None:
    def ask(minutes: float) -> Study:
        raw = {"workload": [{"name": "select-only"}], "experiment": {"minutes": minutes}, **tables}
        return make_study(raw, source="test", folder=Path())

    place = Workspace.make(out=None, home=tmp_path, run_as=None)
    machine = read_machine(ask(1), tmp_path, version_major=18)
    loaded = msgspec.structs.replace(machine, loaded_scales=frozenset(SCALES), disk_free_bytes=10**13)
    with pytest.raises(SpecError, match="1 minute is too few") as caught:
        plan_study(ask(1), loaded)
    minutes = int(caught.value.hint.removeprefix("--minutes ").partition(",")[0])
    plan_study(ask(minutes), loaded)
    check_request(ask(minutes), place)
    with pytest.raises(SpecError, match="1 minute is too few"):
        check_request(ask(1), place)
