"""What tests of rounds share, in which several loads alternate: the members, what became of them, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import TrialStatus
from pgdyno.run.cluster.home import Home
from pgdyno.run.live_member import LiveMember
from pgdyno.run.own_server import OwnServer
from pgdyno.run.trial import TrialOutcome
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import DesignKind
from tests.homes import installation_of
from tests.waiting import wait_until

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
# Leaves the CPUs to the tests beside it.
NAPPING = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\nSELECT pg_sleep(0.005);\n"


def variant(name: str, sysctl: dict[str, str] | None = None, **settings: SettingValue) -> Variant:
    return Variant(name=name, server=ServerSpec(settings=settings), changed=settings, sysctl=sysctl or {})


def make_members(
    home: Home,
    folder: Path,
    names: Sequence[str],
    variants: Sequence[Variant],
    *,
    major: int = 18,
    duration_s: float = 1.5,
    warm_up: str = "1s",
    script: str | None = NAPPING,
) -> list[LiveMember]:
    load: dict[str, object] = {"name": "tpcb-like"}
    if script is not None:
        (folder / "script.sql").write_text(script)
        load = {"name": "script", "scripts": [str(folder / "script.sql")]}
    raw: dict[str, object] = {
        "data": {"scale": 2},
        "workload": [{"clients": 3, "threads": 2, "mode": "prepared", **load}],
        "trials": {"rounds": 1, "duration": "5s", "warm_up": warm_up},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    experiment = Experiment(
        variants=tuple(variants), design=DesignKind.PAIRED, reason="", budget_s=60.0, alpha=0.05, detect_ratio=0.03
    )
    (folder / "init").mkdir()
    server = OwnServer(installation=installation_of(major, home), home=home)
    dataset = server.load(study.data, plan.scale, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
    members = []
    for number, name in enumerate(names, start=1):
        slot = server.in_slot(number)
        trial = msgspec.structs.replace(
            plan.trials[0], number=number, variants=(name,), duration_s=duration_s, seed=number
        )
        stage = TrialStage(
            server=slot,
            generator=slot.make_generator(),
            dataset=dataset,
            study=study,
            plan=msgspec.structs.replace(plan, experiment=experiment),
            settings=experiment.find_variant(name).server.settings,
            cpu_count=2.0,
        )
        (folder / f"{number}").mkdir()
        members.append(LiveMember(stage=stage, trial=trial, folder=folder / f"{number}"))
    return members


def read_members(members: Sequence[LiveMember], outcomes: Sequence[TrialOutcome]) -> list[TrialData]:
    for outcome in outcomes:
        assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
        assert outcome.record.status is TrialStatus.FINISHED
    return [read_trial_data(member.folder, outcome.record) for member, outcome in zip(members, outcomes, strict=True)]


def count_cycles(members: Sequence[LiveMember]) -> list[int]:
    """How many whole slices each member has so far."""
    files = [member.folder / "slices.jsonl" for member in members]
    return [file.read_bytes().count(b"\n") if file.exists() else 0 for file in files]


def once_alternating(members: Sequence[LiveMember], act: Callable[[], object]) -> Callable[[], bool]:
    """Acts once, between two cycles: every member is frozen then."""
    has_acted: list[bool] = []

    def look() -> bool:
        if not has_acted and min(count_cycles(members)) > 0:
            has_acted.append(True)
            act()
        return False

    return look


def postmaster_of(member: LiveMember) -> int:
    return member.stage.server.pid


def pgbench_of(member: LiveMember) -> int:
    pattern = f"pgbench .*--host={member.stage.server.address.host} "
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def find_log_readers() -> list[int]:
    search = ["pgrep", "-f", "-P", str(os.getpid()), "pgdyno.run.load.log_stream"]
    return [int(pid) for pid in subprocess.run(search, capture_output=True, text=True, check=True).stdout.split()]


def kill_log_readers() -> None:
    """Kill them, and wait until they are dead."""
    for pid in find_log_readers():
        os.kill(pid, signal.SIGKILL)
        # Of one that is dead and not waited for yet, nothing is left there.
        assert wait_until(lambda path=Path(f"/proc/{pid}/cmdline"): not path.read_bytes())


def kill_server(member: LiveMember) -> None:
    """Kill its server, and wait until that is known."""
    os.kill(postmaster_of(member), signal.SIGKILL)
    assert wait_until(lambda: member.stage.server.find_failure() is not None)


def processes_of(root: Path) -> str:
    return subprocess.run(["pgrep", "-af", f"{root}/"], capture_output=True, text=True, check=False).stdout


def shared_memory() -> set[str]:
    """System V segments and PostgreSQL's own files: what a server that was killed may leave."""
    listed = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in listed} | {path.name for path in Path("/dev/shm").glob("PostgreSQL.*")}


def own_shared_memory(member: LiveMember) -> str:
    lines = Path(f"/proc/{member.stage.server.pid}/cwd/postmaster.pid").read_text().splitlines()
    return lines[6].split()[1]


def assert_nothing_is_left(home: Home) -> None:
    assert processes_of(home.root) == ""
    assert not list(Path("/dev/shm").glob(f"pgdyno-log-{os.getpid()}-*"))
