"""How a benchmark that runs whole studies tells of them: a line for each step."""

from __future__ import annotations

from collections.abc import Callable

from pgdyno.explain.finding import Finding


class Told:
    """A `flow.ui.Ui` that prints a line for each step that is done, and asks nobody."""

    def __init__(self) -> None:
        self._title = ""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def begin_step(self, title: str, *, predicted_s: float) -> None:
        """A step begins."""
        del predicted_s
        self._title = title

    def end_step(self, result: str) -> None:
        """It ended."""
        print(f"  {self._title}: {result}", flush=True)

    def say(self, text: str) -> None:
        """A note."""
        print(f"  note: {text}", flush=True)

    def show_finding(self, finding: Finding) -> None:
        """What stands in the way of a fair measurement."""
        print(f"  {finding.severity.value}: {finding.claim} {finding.evidence}", flush=True)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Whoever starts this has been told how long it takes."""
        del question, default
        return True
