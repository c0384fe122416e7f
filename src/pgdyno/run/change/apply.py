"""Applies settings to a server and to the kernel, to stay; or, when anything fails, leaves all of it as it was.

What is there before is in the journal first, on disk, so that a pgdyno that is killed at any instant leaves what
`pgdyno restore` can undo. Then the files change, each at once; the server reads them; where it takes a restart, and that
is allowed, it is stopped, the kernel's settings change while nobody holds the memory, and it is started again. Without
that, huge pages wait as long as it runs: it would need its memory twice. Last, all is read back: from the server in its
own units, from /proc and from /sys. Nothing here judges what a setting is good for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.run.change import sysctl, sysfs
from pgdyno.run.change.boot_files import find_overriding
from pgdyno.run.change.journal import (
    AppliedTuning,
    Journal,
    OpenJournal,
    TuningState,
    UndoOutcome,
    own_journal,
    uninterrupted,
)
from pgdyno.run.change.kept_file import write_copy
from pgdyno.run.change.kernel import check_unheld
from pgdyno.run.change.named_server import NamedServer
from pgdyno.run.change.prepare_apply import LeftOut, Prepared
from pgdyno.run.change.settings_state import RunningSettings, ask_state, find_differing, read_conf_value, reload_server
from pgdyno.run.change.tuning_plan import Steps, merge_tunings, plan_steps
from pgdyno.run.change.tuning_undo import undo_tuning
from pgdyno.run.host.process_id import is_running

Tell = Callable[[str], None]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was applied, is in force, and stays."""

    settings: dict[str, str]
    """Of PostgreSQL, in force; of a server that does not run, once it starts."""
    waiting: tuple[str, ...]
    """What waits for the server's restart: settings, which are in its files, and of the kernel's the pool of huge pages."""
    waiting_reason: str
    """Why it was not restarted, in a clause; empty where nothing waits."""
    was_restarted: bool
    sysctls: dict[str, str]
    sysfs: dict[str, str]
    at_boot: dict[str, tuple[str, ...]]
    """Which of the kernel's settings a file sets again at each boot, by its path."""
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...]
    """Of what is not as it seems, in words."""


def apply_tuning(
    prepared: Prepared, *, may_restart: bool, journal: Journal | None = None, on_activity: Tell = lambda _: None
) -> Applied:
    """Apply settings, see that they are in force, and keep them so; or put everything back.

    Args:
        prepared: What `prepare_apply` made, a moment ago.
        may_restart: Whether the server may be restarted where settings take that.
        journal: This account's own where none is given.
        on_activity: Told what is done now.

    Raises:
        SpecError: The kernel refuses a value; everything is as it was.
        HostError: Something has changed since it was prepared, another pgdyno is at work, or a value did not become what
            was asked for; everything is as it was, or the error says what is not and is to be undone by `pgdyno restore`.
        StepFailedError: The server did not come back with its settings; as above.
        KeyboardInterrupt: Ctrl-C; everything is as it was.
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
    """Journal everything before any of it changes."""
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
        f"{name} waits because the server, as long as it runs, holds its memory outside of that pool, and the machine would"
        " need it twice. Whoever restarts the server without pgdyno sets it while the server is stopped:"
        f" sysctl -w {name}={steps.sysctls[name]} (with huge_pages = on it would not start before)."
        for name in waiting
        if name in steps.sysctls
    ]
    return [*pools, *(words for file in steps.boot_files for words in find_overriding(file))]


def _verify(
    server: NamedServer, settings: Mapping[str, str], state: RunningSettings | None, waiting: tuple[str, ...]
) -> list[str]:
    """See that settings are what was asked for, but for those that wait; returns what cannot be seen, in words."""
    asked = {name: value for name, value in settings.items() if name not in waiting}
    if state is not None:
        shown = state.settings
    else:
        # Of an extension that is not loaded its program knows no name.
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
    return [
        f"{name} is set for the role or the database that pgdyno asks as, which hides the server's" for name in hidden
    ]


def _verify_kernel(sysctls: Mapping[str, str], sysfs_values: Mapping[str, str]) -> None:
    # The server was started since.
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
            "settings could not be applied, nor everything be put back",
            detail="\n".join([*first, *(f"{undo.change.what}: {undo.reason}" for undo in failed)]),
            hint="`pgdyno restore` tries again",
        ) from cause
    with journal.open() as page:
        page.write_tuning(previous)
