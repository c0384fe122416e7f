"""Run script files once on a given server, so that a mistake shows before anything is measured.

Those that need pgbench's tables run in a small database of pgdyno's own before the data are loaded, all others on the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.run.given.database import create_database, drop_if_possible
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.load.little_run import PATIENCE_S, list_scripts, plan_little_data, plan_script_run
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import DataSpec

# What no other data would avoid: PostgreSQL's class 42 in words, since pgbench does not print the class.
_MISTAKES = re.compile(r"syntax error|does not exist|undefined variable|is ambiguous|invalid command|permission denied")


def check_scripts_there(
    address: Address,
    generator: Pgbench,
    *,
    data: DataSpec,
    workloads: tuple[PlannedWorkload, ...],
    on_activity: Callable[[str], None],
) -> tuple[str, ...]:
    """Run each script file for a second with one client at scale 1. Call this from the main thread.

    Returns:
        A sentence for each script that failed but may succeed on the study's data.

    Raises:
        SpecError: A script is wrong with any data, or cannot be read.
        StepFailedError: The server refuses the database, or the tables.
    """
    remarks = []
    made = create_database(address)
    try:
        there = msgspec.structs.replace(address, dbname=made.name)
        with TemporaryDirectory(prefix="pgdyno-scripts-") as name:
            folder = Path(name)
            generator.run_init(plan_little_data(there, data), directory=folder / "init")
            for number, (workload, script) in enumerate(list_scripts(workloads)):
                on_activity(script)
                error = _try_script(there, generator, workload, script, folder / str(number))
                if error is None:
                    continue
                if _MISTAKES.search(error.reason):
                    raise _refuse(script, error, hint="correct the script; nothing is loaded yet") from error
                remarks.append(f"{script} failed on a little data, where scale is 1: {error.detail or error.fact}")
    finally:
        drop_if_possible(address, made)
    return tuple(remarks)


def check_scripts_on_data(
    address: Address,
    generator: Pgbench,
    *,
    workloads: tuple[PlannedWorkload, ...],
    on_activity: Callable[[str], None],
) -> None:
    """Run each script file for a second with one client on the data of the study. Call this from the main thread.

    Raises:
        SpecError: A script fails, or cannot be read.
    """
    with TemporaryDirectory(prefix="pgdyno-scripts-") as name:
        for number, (workload, script) in enumerate(list_scripts(workloads)):
            on_activity(script)
            error = _try_script(address, generator, workload, script, Path(name) / str(number))
            if error is not None:
                raise _refuse(script, error, hint="correct the script; nothing was measured") from error


def _refuse(script: str, error: StepFailedError, *, hint: str) -> SpecError:
    return SpecError(f"script {script} fails", detail=error.detail or error.fact, hint=hint)


def _try_script(
    address: Address, generator: Pgbench, workload: PlannedWorkload, script: str, folder: Path
) -> StepFailedError | None:
    """Run one script and return why it failed; None if it succeeded or only took too long."""
    too_long = StepFailedError("the script takes longer than its check")
    began_s = monotonic_s()
    try:
        generator.run_load(
            plan_script_run(address, workload, script),
            directory=folder,
            should_abort=lambda: too_long if monotonic_s() - began_s > PATIENCE_S else None,
        )
    except StepFailedError as error:
        if error is too_long:
            return None
        # pgbench names a copy of the script; the user knows the original.
        error.detail = error.detail.replace(str((folder / f"script-1-{Path(script).name}").absolute()), script)
        return error
    return None
