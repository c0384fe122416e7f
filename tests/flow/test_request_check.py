"""What is refused before the machine is checked: nothing that a plan accepts where the data are loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.emulation import as_emulated
from pgdyno.conduct.request_check import check_request
from pgdyno.conduct.workspace import Workspace, read_machine
from pgdyno.errors import SpecError
from pgdyno.plan.plan import plan_study
from pgdyno.plan.types import Machine
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study

SCALES = (2, 100)


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
    minutes = find_least_minutes(ask(1), loaded)
    plan_study(ask(minutes), loaded)
    check_request(ask(minutes), place)
    with pytest.raises(SpecError, match="1 minute is too few"):
        check_request(ask(1), place)


def test_an_emulated_study_is_held_to_the_time_of_its_emulated_disks(tmp_path: Path) -> None:
    def ask(minutes: float) -> Study:
        raw = {
            "data": {"scale": 100},
            "workload": [{"name": "select-only"}],
            "variant": [{}, {"settings": {"work_mem": "8MB"}}],
            "experiment": {"minutes": minutes, "design": "paired"},
            # A cluster of 1.6 GB and its copy, at 20 MB/s: slower than this disk is taken to be.
            "host": {
                "cpus": 1,
                "memory": "1GB",
                "instance_mb_s": 20,
                "emulate": True,
                "disk": {"volume": "gp3", "size": "9GB"},
            },
        }
        return make_study(raw, source="test", folder=Path())

    place = Workspace.make(out=None, home=tmp_path, run_as=None)
    here = read_machine(ask(1), tmp_path, version_major=18)
    minutes = find_least_minutes(ask(1), as_emulated(here, ask(1), place))
    assert minutes > 2 * find_least_minutes(ask(1), here)
    check_request(ask(minutes), place)
    with pytest.raises(SpecError, match="too few"):
        check_request(ask(minutes // 2), place)


def find_least_minutes(study: Study, machine: Machine) -> int:
    """Return the minutes that a plan suggests for a study of one minute."""
    with pytest.raises(SpecError, match="1 minute is too few") as caught:
        plan_study(study, machine)
    return int(caught.value.hint.removeprefix("--minutes ").partition(",")[0])
