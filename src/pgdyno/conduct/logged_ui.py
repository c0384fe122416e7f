"""Log what a study shows its user: steps with their seconds, remarks, findings, and answers."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.conduct.ui import Ui
from pgdyno.explain.finding import Finding
from pgdyno.plan.plan import Plan
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG


class LoggedUi:
    """Passes everything on to another `Ui`, and logs it; what a load does each second is not logged.

    Args:
        ui: The user's own.
    """

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._title = ""
        self._began_s = 0.0

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float, scaling: Plan | None = None) -> None:
        """Show and log the plan."""
        sweep_count = 0 if scaling is None else len(scaling.trials)
        LOG.info(
            "plan: %s, %d trials, %d of a sweep, %.0f s to go",
            plan.data_words,
            len(plan.trials),
            sweep_count,
            remaining_s,
        )
        self._ui.show_plan(plan, record_dir=record_dir, remaining_s=remaining_s, scaling=scaling)

    def announce(self, lines: Sequence[str], *, total_s: float) -> None:
        """Show and log what is going to be done."""
        LOG.info("to do: %s: %.0f s", "; ".join(lines), total_s)
        self._ui.announce(lines, total_s=total_s)

    def limit(self, *, predicted_s: float, within_s: float) -> None:
        """Pass on how long the next steps may take."""
        LOG.info("time: %.0f s predicted, %.0f s allowed", predicted_s, within_s)
        self._ui.limit(predicted_s=predicted_s, within_s=within_s)

    def begin_step(self, title: str, *, predicted_s: float) -> None:
        """Begin a step."""
        self._title, self._began_s = title, monotonic_s()
        LOG.info("step begins: %s, %.0f s predicted", title, predicted_s)
        self._ui.begin_step(title, predicted_s=predicted_s)

    def show_activity(self, text: str) -> None:
        """Show what the step does."""
        self._ui.show_activity(text)

    def show_load(self, *, tps: float, latency_ms: float | None) -> None:
        """Show a second of load."""
        self._ui.show_load(tps=tps, latency_ms=latency_ms)

    def show_verdicts(self, text: str) -> None:
        """Show the verdicts so far."""
        self._ui.show_verdicts(text)

    def end_step(self, result: str) -> None:
        """End the step."""
        LOG.info("step ends: %s after %.1f s: %s", self._title, monotonic_s() - self._began_s, result)
        self._ui.end_step(result)

    def say(self, text: str) -> None:
        """Say and log a remark."""
        LOG.info("note: %s", text)
        self._ui.say(text)

    def show_finding(self, finding: Finding) -> None:
        """Show and log a finding."""
        LOG.info("finding: %s: %s", finding.severity.value, finding.claim)
        self._ui.show_finding(finding)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask, and log the answer."""
        answer = self._ui.confirm(question, default=default)
        LOG.info("asked: %s: %s", question, "yes" if answer else "no")
        return answer
