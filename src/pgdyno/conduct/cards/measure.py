"""Measure a disk card step by step, for `pgdyno disk` and for a study whose disk has no card of the last 24 hours."""

from __future__ import annotations

import datetime as dt
import platform
from pathlib import Path

import msgspec

from pgdyno import __version__
from pgdyno.conduct.ui import Ui
from pgdyno.plan.disk import DiskPlan
from pgdyno.record.device.disk_card import CardMachine, ClockTest, DiskCard
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.tunables import Tunables
from pgdyno.run.device.disk_bench import DiskTools, measure_disk
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.tunables import read_sysctls
from pgdyno.run.postgres.installation import read_server_facts

_BOOT_ID = "kernel.random.boot_id"


class DiskJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of a path, on the machine as it is."""

    path: Path
    machine: Tunables
    plan: DiskPlan
    clock: ClockTest | None = None
    """The test of the machine's clock, if it was run before."""

    @property
    def expected_s(self) -> float:
        """The expected seconds; a test that was run before takes none."""
        return self.plan.expected_s - (0.0 if self.clock is None else self.plan.clock_test_s)


def take_card(jobs: DiskJobs, tools: DiskTools, *, ui: Ui, now: dt.datetime, title: str = "") -> DiskCard:
    """Measure a path.

    Args:
        jobs: What to measure.
        tools: The programs to measure with.
        ui: Shows each step.
        now: When the measurement begins.
        title: The beginning of each step's title.

    Raises:
        HostError: The folder cannot be used.
        StepFailedError: The file cannot be laid out.
    """
    began_s = monotonic_s()
    steps = _Steps(ui, title)
    seen = measure_disk(
        jobs.path, jobs.plan, tools, clock=jobs.clock, on_step=steps.begin, on_activity=ui.show_activity
    )
    steps.end()
    return DiskCard(
        pgdyno_version=__version__,
        made_at=now,
        name=str(jobs.path),
        path=str(jobs.path),
        machine=describe_machine(jobs.machine.host),
        look=jobs.machine.disk,
        took_s=monotonic_s() - began_s,
        **{**msgspec.structs.asdict(seen), "tools": {**seen.tools, **_name_server(tools)}},
    )


def describe_machine(host: HostFacts) -> CardMachine:
    """Describe this machine as the one of a card.

    Args:
        host: Its facts.
    """
    return CardMachine(
        hostname=platform.node(),
        cpu_model=host.cpu_model,
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        kernel=host.kernel,
        boot_id=read_sysctls([_BOOT_ID]).get(_BOOT_ID),
    )


def _name_server(tools: DiskTools) -> dict[str, str]:
    return {} if tools.bindir is None else {"PostgreSQL": read_server_facts(tools.bindir).version.split()[0]}


class _Steps:
    """Steps that end when the next one begins."""

    def __init__(self, ui: Ui, title: str) -> None:
        self._ui, self._title = ui, title
        self._is_open = False

    def begin(self, title: str, predicted_s: float) -> None:
        self.end()
        self._ui.begin_step(f"{self._title}{title}", predicted_s=predicted_s)
        self._is_open = True

    def end(self) -> None:
        if self._is_open:
            self._ui.end_step("")
        self._is_open = False
