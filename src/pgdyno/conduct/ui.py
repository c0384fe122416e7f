"""Show a study to its user through a small protocol: nothing below the command line prints or knows a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgdyno.explain.finding import Finding
from pgdyno.plan.plan import Plan


class Ui(Protocol):
    """Shows a study's progress, and asks."""

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float, scaling: Plan | None = None) -> None:
        """Show the plan and that of the sweep that follows, with the seconds that both still take."""

    def announce(self, lines: Sequence[str], *, total_s: float) -> None:
        """Show what is going to be done, and how long it takes."""

    def limit(self, *, predicted_s: float, within_s: float) -> None:
        """Note that the next steps are predicted to take `predicted_s`, and end after `within_s` at the latest."""

    def begin_step(self, title: str, *, predicted_s: float) -> None:
        """Begin a step."""

    def show_activity(self, text: str) -> None:
        """Show what the step is doing now."""

    def show_load(self, *, tps: float, latency_ms: float | None) -> None:
        """Show the last second of a load: transactions per second and their mean latency."""

    def show_verdicts(self, text: str) -> None:
        """Show the verdicts so far, or how far a block is from having any."""

    def end_step(self, result: str) -> None:
        """End the step, with its result in a few words."""

    def say(self, text: str) -> None:
        """Show a remark that the user should read and that is no error."""

    def show_finding(self, finding: Finding) -> None:
        """Show what would spoil a measurement on this machine."""

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask before something long or something that deletes; return `default` where the user cannot be asked."""
