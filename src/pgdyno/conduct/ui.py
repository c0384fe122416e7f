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


class LateStep:
    """A step that begins with the first word about it; without one, nothing of it is shown.

    Args:
        ui: Shows it.
        title: Its title.
        predicted_s: How long it takes.
        announced: What is announced before it; None: nothing is.
    """

    def __init__(self, ui: Ui, title: str, *, predicted_s: float, announced: str | None = None) -> None:
        self._ui = ui
        self._title = title
        self._predicted_s = predicted_s
        self._announced = announced
        self._has_begun = False

    def tell(self, text: str) -> None:
        """Show what it is doing now."""
        if not self._has_begun:
            self._has_begun = True
            if self._announced is not None:
                self._ui.announce([self._announced], total_s=self._predicted_s)
            self._ui.begin_step(self._title, predicted_s=self._predicted_s)
        self._ui.show_activity(text)

    def end(self, result: str) -> None:
        """End it if it has begun."""
        if self._has_begun:
            self._ui.end_step(result)
