"""Run script files once on a given server, in a small database of pgdyno's own, so that a mistake shows before the data are loaded."""

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
                words = _try_script(there, generator, workload, script, folder / str(number))
                if words:
                    remarks.append(f"{script} failed on a little data, where scale is 1: {words}")
    finally:
        drop_if_possible(address, made)
    return tuple(remarks)


def _try_script(address: Address, generator: Pgbench, workload: PlannedWorkload, script: str, folder: Path) -> str:
    """Run one script and return why it failed; empty if it succeeded or only took too long."""
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
            return ""
        # pgbench names a copy of the script; the user knows the original.
        words = error.detail.replace(str((folder / f"script-1-{Path(script).name}").absolute()), script)
        if _MISTAKES.search(words):
            raise SpecError(
                f"script {script} fails", detail=words, hint="correct the script; nothing is loaded yet"
            ) from error
        return words or error.fact
    return ""
