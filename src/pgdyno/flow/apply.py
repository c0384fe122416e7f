"""`pgdyno tune --apply`: put derived settings in force on a server that the user named, after asking, and verify them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.errors import InterruptedStudyError, SpecError, with_program
from pgdyno.flow.tune import Form, TuneRequest, TuneResult, tune
from pgdyno.report.forms.plain import render_headed, render_line
from pgdyno.run.change.apply import Applied, apply_tuning
from pgdyno.run.change.prepare_apply import Prepared, find_named_server, prepare_apply
from pgdyno.run.host.program import program_name
from pgdyno.tune.differences import find_differences
from pgdyno.tune.slots import refuse_lost_slots
from pgdyno.tune.types import Target


class AppliedTuning(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that were applied."""

    applied: Applied | None
    """None where everything was in force already."""
    was_running: bool
    """True if the server ran and could say which settings are in force."""
    advice_count: int
    """Settings that pgdyno cannot apply: of volumes, and limits of what starts the server."""

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode({"format": "pgdyno-apply", "version": 1, **msgspec.structs.asdict(self)})

    def to_terminal(self) -> RenderableType:
        """Return the result as a person reads it."""
        if self.applied is None:
            return render_line("nothing to change: all of it is in force")
        parts = _describe(self.applied, was_running=self.was_running)
        return render_headed(
            ((title, with_program(words, program_name())) for title, words in parts),
            last=self._describe_advice(),
        )

    def _describe_advice(self) -> str:
        left = f"left to you: {self.advice_count} on volumes and on what starts the server, which the same command"
        return f"{left} shows without --apply" * bool(self.advice_count)


def apply(question: TuneRequest, *, may_restart: bool, ui: Ui, show: Callable[[TuneResult], None]) -> AppliedTuning:
    """Derive settings, show what changes, ask, and apply it; leave everything as it is where the user says no.

    Args:
        question: What to derive; it names a server.
        may_restart: Whether the server may be restarted for settings that need it.
        ui: Asks, and shows what is done.
        show: Shows what would change, before the question.

    Raises:
        SpecError: No server is named, the settings cannot be, or the user says no; nothing is changed.
        HostError: A standby's slot would be given up, or something cannot be applied here; everything is as it was, or the error says what is not.
        StepFailedError: The server does not start with the settings; likewise.
        InterruptedStudyError: Ctrl-C; everything is as it was.
    """
    if question.data_dir is None:
        raise SpecError(
            "--apply needs a server to apply to",
            detail="pgdyno's own servers are made anew for every study",
            hint="name yours with --pgdata DIR",
        )
    tuned = tune(question, form=Form.DIFF, is_to_be_started=True)
    view = tuned.view
    differing = [one for one in find_differences(view.tuning, view.now, waiting=view.waiting) if not one.is_same]
    refuse_lost_slots(view.tuning, {one.derived.name for one in differing})
    values: dict[Target, dict[str, str]] = {target: {} for target in Target}
    for one in differing:
        values[one.derived.target][one.derived.name] = one.derived.value
    prepared = prepare_apply(
        find_named_server(question.data_dir, bindir=tuned.bindir),
        settings=values[Target.POSTGRESQL],
        sysctls=values[Target.SYSCTL],
        sysfs=values[Target.SYSFS],
    )
    advice = sum(1 for one in view.tuning.settings if one.target in {Target.LIMIT, Target.STORAGE, Target.POOLER})
    show(tuned)
    if not (prepared.settings or prepared.sysctls or prepared.sysfs):
        return AppliedTuning(applied=None, was_running=prepared.running is not None, advice_count=advice)
    leaves_kernel = question.wishes.leaves_kernel
    if not ui.confirm(_ask(prepared, may_restart=may_restart, leaves_kernel=leaves_kernel), default=False):
        raise SpecError("nothing was applied", hint="say yes, or add --yes")
    try:
        applied = apply_tuning(prepared, may_restart=may_restart, on_activity=ui.show_activity)
    except KeyboardInterrupt as exc:
        raise InterruptedStudyError("stopped", detail="everything is as it was before") from exc
    return AppliedTuning(applied=applied, was_running=prepared.running is not None, advice_count=advice)


def _ask(prepared: Prepared, *, may_restart: bool, leaves_kernel: bool) -> str:
    kernel = len(prepared.sysctls) + len(prepared.sysfs)
    counts = {"settings of the server": len(prepared.settings), "of the kernel, which --no-kernel leaves alone": kernel}
    parts = [" and ".join(f"{count} {what}" for what, count in counts.items() if count)]
    waiting = len(prepared.restarting)
    if prepared.settings and prepared.running is None:
        parts.append("the server does not run, and has them when it starts")
    elif waiting:
        parts.append("the server is restarted" if may_restart else f"waiting for a restart: {waiting}")
    if leaves_kernel:
        parts.append("the kernel stays as it is")
    parts += [f"left out: {len(one.names)} {one.what} ({one.reason})" for one in prepared.left_out]
    return f"apply {'; '.join(parts)}?"


def _describe(applied: Applied, *, was_running: bool) -> Iterator[tuple[str, str]]:
    """Yield what was done, below its headings."""
    in_force = ", ".join(name for name in applied.settings if name not in applied.waiting)
    after = " after its restart" if applied.was_restarted else ""
    yield f"in force, as the server says{after}" if was_running else "in force once the server is started", in_force
    yield f"waiting for a restart: {applied.waiting_reason}", ", ".join(applied.waiting)
    kernel = {**applied.sysctls, **applied.sysfs}
    lasting = {name for names in applied.at_boot.values() for name in names}
    for until, names in (
        *((f", and again at each boot by {path}", names) for path, names in applied.at_boot.items()),
        (", until the next boot", [name for name in kernel if name not in lasting]),
    ):
        yield (
            f"in force in the kernel{until}",
            ", ".join(f"{name} = {kernel[name]}" for name in names if name in kernel),
        )
    for one in applied.left_out:
        yield f"not applied, {one.what}: {one.reason}", ", ".join(one.names)
    yield "worth knowing", " ".join(applied.remarks)
    restart = " --restart" if applied.was_restarted else ""
    yield "to undo all of it, at any later time", f"`pgdyno restore{restart}`"
