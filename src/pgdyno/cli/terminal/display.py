"""Show progress on stderr: a live bar with predicted time on a terminal, one line for each step elsewhere.

Rich turns colours and movement off for NO_COLOR, a pipe or a dumb terminal.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from pgdyno.cli.terminal.output import PipedConsole
from pgdyno.cli.terminal.progress_bar import RemainingColumn, TrendProgress, format_minutes
from pgdyno.cli.terminal.trend import Trend
from pgdyno.errors import with_program
from pgdyno.explain.finding import Finding
from pgdyno.plan.minutes import list_notes
from pgdyno.plan.plan import Plan, PlannedWorkload, apply_variant
from pgdyno.report.forms.terminal import HUE_STYLES
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.program import program_name
from pgdyno.spec.variant import DesignKind
from pgdyno.units import count_things, format_bytes

if TYPE_CHECKING:
    from pgdyno.run.live_page import LivePage, PageRequest

# Drawing takes CPU time from the load; twice a second is enough.
_REFRESH_PER_S = 2
# Steps may run slower than predicted. A factor above 2 is an outlier and does not count for the other steps, nor do
# faster steps, such as a scale that is already loaded.
_SLOWEST_PACE = 2.0
# Before this share of a plan is done, the speed of its first steps (disk, loading) does not count for the trials.
_TELLING_SHARE = 0.05


class Display(AbstractContextManager["Display"]):
    """The progress of a study on stderr; implements `conduct.ui.Ui`.

    Args:
        quiet: Show only remarks from `say`.
        assume_yes: Answer every question with yes.
        page: What to serve of the record from the plan on, and where; None: nothing.
    """

    def __init__(self, *, quiet: bool = False, assume_yes: bool = False, page: PageRequest | None = None) -> None:
        self._assume_yes = assume_yes
        self._page = None if page is None else _serve(page)
        self._trend = None if page is None or page.address is None else Trend()
        self.console = PipedConsole(stderr=True, highlight=False)
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._done_s = 0.0
        self._spent_s = 0.0
        self._total_s = 0.0
        self._title = self._news = ""
        self._has_begun = False
        """Whether a transaction of the load has ended."""
        self._predicted_s = 0.0
        self._began_s = 0.0
        self._limited_s = 0.0
        self._limit_at_s = 0.0

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the progress bar, and end the page."""
        self.close()
        if self._page is not None:
            has_ended = kind is None or issubclass(kind, SystemExit)
            self._page.close(is_stopped=not has_ended, say=self.say)

    def close(self) -> None:
        """Remove the progress bar, before anything else is printed."""
        self._total_s = 0.0
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def show_plan(self, plan: Plan, *, record_dir: str, remaining_s: float, scaling: Plan | None = None) -> None:
        """Print the plan; the bar starts with the next step, so that a question can be asked first."""
        self._print_plan(
            describe_plan(plan, scaling), f"about {format_minutes(remaining_s)}; record: {record_dir}", remaining_s
        )
        self._open_page(Path(record_dir))

    def _open_page(self, record: Path) -> None:
        if self._page is None or self._page.is_open:
            return
        for line in self._page.open(record):
            self.say(line)

    def announce(self, lines: Sequence[str], *, total_s: float) -> None:
        """Print what will be done; the bar starts with the next step."""
        self._print_plan(lines, f"about {format_minutes(total_s)}", total_s)

    def limit(self, *, predicted_s: float, within_s: float) -> None:
        """Limit the remaining time of the next steps to their time budget, however slow they are."""
        self._limited_s, self._limit_at_s = predicted_s, monotonic_s() + within_s
        # Rounds that are added when the plan is over belong to it.
        self._total_s = max(self._total_s, self._done_s + predicted_s) if self._total_s else 0.0
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=self._total_s)

    def begin_step(self, title: str, *, predicted_s: float) -> None:
        """Begin a step with its title."""
        self._news, self._has_begun = "", False
        if self._trend is not None:
            self._trend.leave_gap()
        self._title, self._predicted_s, self._began_s = title, predicted_s, monotonic_s()
        if self._total_s and self._progress is None and self.console.is_terminal and not self._quiet:
            self._start_bar()
        self._update(live="")

    def show_activity(self, text: str) -> None:
        """Show the current activity of the step."""
        self._has_begun = False
        self._update(live=text)

    def show_load(self, *, tps: float, latency_ms: float | None) -> None:
        """Show throughput and latency of the last second; before a transaction has ended, the activity stays."""
        self._has_begun = self._has_begun or tps > 0
        if not self._has_begun:
            return
        latency = "" if latency_ms is None else f" · {latency_ms:.3g} ms"
        if self._trend is not None:
            self._trend.add(tps=tps, latency_ms=latency_ms)
            self._update(live="")
            return
        news = f" · {self._news}" if self._news else ""
        self._update(live=f"{tps:,.0f} tps{latency}{news}")

    def show_verdicts(self, text: str) -> None:
        """Show the verdicts so far beside the next seconds of this step, or with --live as long as the study runs."""
        self._news = text
        if self._trend is not None:
            self._trend.verdicts = text

    def end_step(self, result: str) -> None:
        """Print the line of a finished step."""
        elapsed_s = monotonic_s() - self._began_s
        self._done_s += self._predicted_s
        self._limited_s = max(self._limited_s - self._predicted_s, 0.0)
        self._spent_s += min(elapsed_s, self._predicted_s * _SLOWEST_PACE)
        self._predicted_s, self._began_s = 0.0, monotonic_s()
        self._update(live="")
        if not self._quiet:
            self._print(f"{self._title:<34} {elapsed_s:6.1f} s   {result}".rstrip())

    def remaining_s(self) -> float:
        """Return the remaining predicted time, scaled by the speed of the finished steps."""
        is_telling = self._done_s > self._total_s * _TELLING_SHARE
        pace = max(self._spent_s / self._done_s, 1.0) if is_telling else 1.0
        left_s = max(self._total_s - self._done_s - self._step_elapsed_s(), 0.0)
        limited_s = min(max(self._limited_s - self._step_elapsed_s(), 0.0), left_s)
        # A comparison skips the trials that remain when its time budget is used up.
        within_limit_s = min(limited_s * pace, max(self._limit_at_s - monotonic_s(), 0.0))
        return (left_s - limited_s) * pace + within_limit_s

    def say(self, text: str) -> None:
        """Print a remark."""
        self.console.print(f"[yellow]note:[/yellow] {escape(with_program(text, program_name()))}", soft_wrap=True)

    def show_finding(self, finding: Finding) -> None:
        """Print a finding in a line, with its fix; the report has its evidence."""
        from pgdyno.report.severity_words import name_severity  # noqa: PLC0415 - it loads the analysis

        words = with_program(f"{finding.claim} {finding.advice}".strip(), program_name())
        severity = (name_severity(finding), HUE_STYLES.get(finding.severity.value, "bold"))
        self.console.print(Text.assemble(severity, f": {words}"), soft_wrap=True)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask a question on the terminal; --yes answers with yes, and without a terminal `default` is the answer."""
        if self._assume_yes:
            return True
        if not (self.console.is_terminal and sys.stdin.isatty()):
            return default
        try:
            # As markup, [y/N] would be read as a style and not be shown.
            return self.console.input(f"{question} [y/N] ", markup=False).strip().lower() in {"y", "yes"}
        except EOFError:
            # Ctrl-D means no.
            return False

    def _print_plan(self, lines: Sequence[str], last: str, total_s: float) -> None:
        # A plan that is announced after the first steps restarts the count.
        self.close()
        self._done_s, self._spent_s, self._total_s, self._limited_s = 0.0, 0.0, total_s, 0.0
        if not self._quiet:
            for line in lines:
                self._print(line)
            self._print(last, style="bold")

    def _print(self, line: str, *, style: str = "") -> None:
        """Print a line; on a narrow terminal, wrap it between words with an indent."""
        parts = [line]
        if self.console.is_terminal:
            indent = len(line) - len(line.lstrip()) + 4
            parts = textwrap.wrap(
                line,
                self.console.width,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
            )
        for part in parts:
            self.console.print(Text(part, style=style), soft_wrap=True)

    def _start_bar(self) -> None:
        self._progress = TrendProgress(
            self._trend,
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            RemainingColumn(self.remaining_s),
            TextColumn("{task.fields[live]}"),
            console=self.console,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )
        self._task = self._progress.add_task("", total=max(self._total_s, 1.0), live="")
        self._progress.start()

    def _update(self, *, live: str) -> None:
        if self._progress is None or self._task is None:
            return
        # A step that takes longer than predicted must not move the bar into later steps.
        completed_s = self._done_s + self._step_elapsed_s()
        self._progress.update(self._task, description=self._title, completed=completed_s, live=live)

    def _step_elapsed_s(self) -> float:
        return min(monotonic_s() - self._began_s, self._predicted_s)


def _serve(page: PageRequest) -> LivePage:
    # An HTTP server is loaded with it, and few commands serve anything.
    from pgdyno.run.live_page import LivePage  # noqa: PLC0415

    return LivePage(page)


def describe_plan(plan: Plan, scaling: Plan | None = None) -> list[str]:
    """Describe the plan in a few lines, with the sweep that follows it."""
    trials = plan.trials
    rounds = max((trial.round for trial in trials), default=0)
    size = "" if plan.dataset_bytes is None else f" ({format_bytes(plan.dataset_bytes)})"
    lines = [
        (
            f"{plan.data_words}{size}, {count_things(rounds, _name_unit(plan))} of"
            f" {count_things(len(plan.workloads), 'workload')}:"
        )
    ]
    for workload in plan.workloads:
        trial = next(t for t in trials if t.workload == workload.name and not t.is_observed)
        if workload.is_loading:
            lines.append(f"  {workload.name}: pgbench -i into an empty database, about {trial.duration_s:g} s each")
            continue
        rate = f", {workload.rate_tps:g} tps scheduled" if workload.rate_tps else ""
        lines.append(
            f"  {workload.name}: {_describe_load(plan, workload)}{rate},"
            f" {trial.warm_up_s:g} s warm-up + {trial.duration_s:g} s measured"
        )
    if plan.search is not None:
        lines.append(f"  search: {plan.search.aim}, to {plan.search.resolution_ratio * 100:g} %")
    if scaling is not None:
        (workload,) = scaling.workloads
        most = count_things(scaling.trials[-1].round, "round")
        under = "" if plan.experiment is None else ", with the winning settings"
        lines.append(f"  then {workload.name} by {_describe_load(scaling, workload)}{under}: at most {most}")
        if plan.experiment is None and scaling.experiment is not None:
            lines.append(f"  these {scaling.experiment.design.value}: {scaling.experiment.reason}")
    lines += [f"  chosen: {choice.name} = {choice.value}: {choice.reason}" for choice in plan.choices]
    return [*lines, *(f"  note: {note}" for note in list_notes(plan))]


def _name_unit(plan: Plan) -> str:
    """Return the unit of trials: a block in a switchback, whose rounds are inside blocks, else a round."""
    is_switchback = plan.experiment is not None and plan.experiment.design is DesignKind.SWITCHBACK
    return "block" if is_switchback else "round"


def _describe_load(plan: Plan, workload: PlannedWorkload) -> str:
    """Describe a workload's load over all variants: `1 to 8 clients, 2 threads, simple mode`."""
    variants = () if plan.experiment is None else plan.experiment.variants
    loads = [apply_variant(workload, variant) for variant in variants] or [workload]
    clients, threads = (
        _span([load.clients for load in loads], "client"),
        _span([load.threads for load in loads], "thread"),
    )
    hosts = [load.load_hosts for load in loads if load.load_hosts is not None]
    where = f" from {_span(hosts, 'load host')}" if hosts else ""
    return f"{clients}{where}, {threads}, {' or '.join(dict.fromkeys(load.mode.value for load in loads))} mode"


def _span(numbers: list[int], name: str) -> str:
    least, most = min(numbers), max(numbers)
    return count_things(most, name) if least == most else f"{least:,} to {count_things(most, name)}"
