"""Apply settings to a server and the kernel to stay, or leave everything as it was.

The journal on disk first receives the old state, so that `pgdyno restore` can undo the work of a pgdyno that was killed
at any instant. Then each file is replaced in one step, and the server reloads its configuration. If a restart is needed
and allowed, the server is stopped, the kernel settings are changed while the server holds no memory, and the server is
started again. Without the restart the change of huge pages would have to wait, because the machine would need the
server's memory twice. At the end everything is read back: from the server in its own units, from /proc and from /sys.
This module does not judge what a setting is good for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.run.change import sysctl, sysfs
from pgdyno.run.change.boot_files import find_overriding
from pgdyno.run.change.changes import AppliedTuning, TuningState, UndoOutcome
from pgdyno.run.change.journal import Journal, OpenJournal, own_journal
from pgdyno.run.change.kept_file import write_copy
from pgdyno.run.change.kernel import check_unheld
from pgdyno.run.change.kernel_lock import check_unlocked
from pgdyno.run.change.named_server import NamedServer
from pgdyno.run.change.prepare_apply import LeftOut, Prepared
from pgdyno.run.change.settings_state import RunningSettings, ask_state, find_differing, read_conf_value, reload_server
from pgdyno.run.change.tuning_plan import Steps, merge_tunings, plan_steps
from pgdyno.run.change.tuning_undo import undo_tuning
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process_id import is_running

Tell = Callable[[str], None]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The applied settings, which are in force and stay."""

    settings: dict[str, str]
    """PostgreSQL's settings that are in force, or that a stopped server will have once it starts."""
    waiting: tuple[str, ...]
    """Names that take effect at the server's next restart: settings in its files, and kernel pools of huge pages."""
    waiting_reason: str
    """Why the server was not restarted, as a clause; empty if nothing waits."""
    was_restarted: bool
    sysctls: dict[str, str]
    sysfs: dict[str, str]
    at_boot: dict[str, tuple[str, ...]]
    """Names of the kernel settings that each file sets again at boot, by the file's path."""
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...]
    """Sentences for the user about settings that do not take effect as expected."""


def apply_tuning(
    prepared: Prepared, *, may_restart: bool, journal: Journal | None = None, on_activity: Tell = lambda _: None
) -> Applied:
    """Apply settings and check that they are in force, or put everything back.

    Args:
        prepared: The result of a recent `prepare_apply`.
        may_restart: Whether the server may be restarted for settings that need it.
        journal: The journal to write; None: the journal of this account.
        on_activity: Called with a description of each step as it begins.

    Raises:
        SpecError: The kernel refuses a value; everything is as it was.
        HostError: The machine has changed since the preparation, another pgdyno is at work, or a value did not become
            what was asked for. Everything is as it was, or the error says what `pgdyno restore` has yet to undo.
        StepFailedError: The server did not start with its new settings; the state is as described for HostError.
        KeyboardInterrupt: The user pressed Ctrl-C; everything is as it was.
    """
    journal = journal or own_journal()
    begun: list[tuple[Steps, AppliedTuning | None]] = []
    try:
        with journal.open() as page:
            begun.append(_begin(prepared, page, may_restart=may_restart))
        steps, _ = begun[0]
        applied = _carry_out(prepared, steps, on_activity)
        with journal.open() as page:
            if page.tuning is not None:
                page.write_tuning(msgspec.structs.replace(page.tuning, state=TuningState.APPLIED))
    except BaseException as exc:
        if not begun:
            raise
        with uninterrupted():
            on_activity("putting everything back")
            _roll_back(prepared, begun[0], journal, exc, on_activity)
        if isinstance(exc, PgdynoError):
            exc.detail = f"{exc.detail}\neverything is as it was before".lstrip("\n")
        raise
    return applied


def _begin(prepared: Prepared, page: OpenJournal, *, may_restart: bool) -> tuple[Steps, AppliedTuning | None]:
    """Write every change to the journal before the first one is made."""
    previous = page.tuning
    if previous is not None and previous.state is TuningState.APPLYING:
        if is_running(previous.owner):
            raise HostError(
                "another pgdyno is tuning this host", detail=f"pid {previous.owner.pid}", hint="wait for it"
            )
        raise HostError("a pgdyno that was killed has left a tuning half applied", hint="`pgdyno restore` undoes it")
    steps = plan_steps(prepared, previous, may_restart=may_restart)
    for change in steps.tuning.kernel:
        check_unheld(change, page.changes)
        check_unlocked(change)
    for file in steps.files:
        if file.old is not None:
            page.save(file.old.content)
    page.write_tuning(merge_tunings(previous, steps.tuning))
    return steps, previous


def _carry_out(prepared: Prepared, steps: Steps, on_activity: Tell) -> Applied:
    for file in steps.files:
        on_activity(f"writing {file.path}")
        write_copy(file.path, file.new, instead_of=file.old, uid=file.uid)
    server, running = prepared.server, prepared.running
    state = reload_server(server, tuple(prepared.settings)) if server and running else None
    shown = state.settings if state else {}
    waiting = (*(name for name in shown if shown[name].is_waiting), *prepared.waiting_pools)
    starter = running.origin.starter if running and waiting and steps.tuning.may_restart else None
    if server and starter:
        on_activity("stopping the server")
        server.stop(starter)
        waiting = ()
    on_activity("setting the kernel")
    sysctls = {name: value for name, value in steps.sysctls.items() if name not in waiting}
    sysctl.write_values(sysctls)
    sysfs.write_values(prepared.sysfs)
    if server and running and starter:
        on_activity("starting the server")
        server.start(starter, running.origin.environment)
        state = ask_state(server, tuple(prepared.settings))
    remarks = _verify(server, prepared.settings, state, waiting) if server else []
    _verify_kernel(sysctls, prepared.sysfs)
    remarks += _find_remarks(steps, waiting)
    return Applied(
        settings={name: value for name, value in prepared.settings.items() if name not in waiting},
        waiting=waiting,
        waiting_reason=(running.origin.obstacle or "none was asked for, which --restart does")
        if running and waiting
        else "",
        was_restarted=starter is not None,
        sysctls={name: value for name, value in prepared.sysctls.items() if name not in waiting},
        sysfs=prepared.sysfs,
        at_boot={str(file.path): file.names for file in steps.boot_files},
        left_out=prepared.left_out,
        remarks=tuple(remarks),
    )


def _find_remarks(steps: Steps, waiting: tuple[str, ...]) -> list[str]:
    pools = [
        f"{name} waits: a running server holds its memory outside of that pool, and the machine would need that memory"
        " twice. To restart the server without pgdyno, set the pool while the server is stopped:"
        f" sysctl -w {name}={steps.sysctls[name]} (with huge_pages = on it would not start before)."
        for name in waiting
        if name in steps.sysctls
    ]
    return [*pools, *(words for file in steps.boot_files for words in find_overriding(file))]


def _verify(
    server: NamedServer, settings: Mapping[str, str], state: RunningSettings | None, waiting: tuple[str, ...]
) -> list[str]:
    """Check that the settings have the requested values, except those that wait, and return what cannot be checked."""
    asked = {name: value for name, value in settings.items() if name not in waiting}
    if state is not None:
        shown = state.settings
    else:
        # `postgres -C` does not know the settings of an extension that is not loaded.
        asked = {name: value for name, value in asked.items() if "." not in name}
        shown = {name: read_conf_value(server, name) for name in asked}
    differing = find_differing(asked, shown, server.major)
    hidden = [name for name in differing if shown[name].is_of_session]
    wrong = [name for name in asked if shown[name].is_waiting or (name in differing and name not in hidden)]
    if wrong:
        raise StepFailedError(
            "the server took a setting differently",
            detail="\n".join(f"{name}: {asked[name]} was asked for, it is {shown[name].value}" for name in wrong),
        )
    return [f"{name} is set for pgdyno's role or database, which hides the server's value" for name in hidden]


def _verify_kernel(sysctls: Mapping[str, str], sysfs_values: Mapping[str, str]) -> None:
    # The server was started after the kernel settings were written and may have affected them.
    found = {name: sysctl.read_value(name) for name in sysctls} | {
        name: sysfs.read_value(name) for name in sysfs_values
    }
    wrong = [
        f"{name}: {value} was set, it is {found[name]}"
        for name, value in {**sysctls, **sysfs_values}.items()
        if found[name] != value
    ]
    if wrong:
        raise HostError("the kernel has changed a setting by itself", detail="\n".join(wrong))


def _roll_back(
    prepared: Prepared,
    begun: tuple[Steps, AppliedTuning | None],
    journal: Journal,
    cause: BaseException,
    on_activity: Tell,
) -> None:
    steps, previous = begun
    environment = prepared.running.origin.environment if prepared.running else None
    undone = undo_tuning(steps.tuning, steps.load, environment=environment, on_activity=on_activity)
    failed = [undo for undo in undone if undo.outcome is UndoOutcome.FAILED]
    if failed:
        first = [cause.reason] if isinstance(cause, PgdynoError) else []
        raise HostError(
            "settings could not be applied, and not everything could be put back",
            detail="\n".join([*first, *(f"{undo.change.what}: {undo.reason}" for undo in failed)]),
            hint="`pgdyno restore` tries again",
        ) from cause
    with journal.open() as page:
        page.write_tuning(previous)
