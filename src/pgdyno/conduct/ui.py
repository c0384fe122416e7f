"""What a flow tells whoever waits: a small protocol, so that flows neither print nor know a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgdyno.explain.finding import Finding
from pgdyno.plan.plan import Plan


class Ui(Protocol):
    """Receives what happens. Seconds count from the start of the step."""

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float, scaling: Plan | None = None) -> None:
        """The plan is made, and that of the sweep that follows; `remaining_s` of both are still to be done."""

    def announce(self, lines: Sequence[str], *, total_s: float) -> None:
        """What is going to be done, which takes so long."""

    def limit(self, *, predicted_s: float, within_s: float) -> None:
        """Steps follow that are predicted to take so long, and end after `within_s` at the latest."""

    def begin_step(self, title: str, *, predicted_s: float) -> None:
        """A step begins."""

    def show_activity(self, text: str) -> None:
        """What the step is doing now."""

    def show_load(self, *, tps: float, latency_ms: float | None) -> None:
        """A second of load under way, in transactions per second and their mean latency."""

    def end_step(self, result: str) -> None:
        """The step ended; `result` in a few words."""

    def say(self, text: str) -> None:
        """Something the user should know, which is no error."""

    def show_finding(self, finding: Finding) -> None:
        """What stands between this machine and a fair measurement."""

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask before something long or something that deletes; `default` where nobody can be asked."""
