"""Plan short runs of script files on a little data, which show a mistake before a study's data are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.plan.plan import PlannedWorkload
from pgdyno.run.load.argv import InitRun, LoadRun
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec

SCRIPT_CHECK_S = 5.0
"""The approximate duration of the check; each script adds a second."""
_RUN_S = 1.0
# A script may take longer; that is no mistake, and the user should not have to wait for it.
PATIENCE_S = 15.0


NO_PIPELINE = "cannot use pipeline mode with the simple query protocol"
"""What pgbench says of a script with pipelines in simple mode."""
UNDEFINED_VARIABLE = "undefined variable"
# pgbench sends the name of a variable without a value as it stands.
_SENT_AS_IT_STANDS = 'syntax error at or near ":"'


def hint_for_mistake(words: str) -> str:
    """Return what mends a script that fails with any data, by what pgbench said of it."""
    mend = "correct the script"
    if NO_PIPELINE in words:
        mend = "choose the mode extended or prepared"
    elif UNDEFINED_VARIABLE in words or _SENT_AS_IT_STANDS in words:
        mend = "give each variable its value in the script, with \\set"
    return f"{mend}; nothing is loaded yet"


def has_script_files(workloads: tuple[PlannedWorkload, ...]) -> bool:
    """Return whether there are script files to check."""
    return any(True for _ in list_scripts(workloads))


def list_scripts(
    workloads: tuple[PlannedWorkload, ...], *, with_builtin: bool = False
) -> Iterator[tuple[PlannedWorkload, str]]:
    """Yield each script file once for each workload that has it; built-in scripts, too, where they are asked for."""
    for workload in workloads:
        for name in dict.fromkeys(name for name, _ in workload.scripts):
            if with_builtin or name not in BUILTIN_SCRIPTS:
                yield workload, name


def plan_little_data(address: Address, data: DataSpec) -> InitRun:
    """Return what loads a study's tables at scale 1."""
    return InitRun(
        address=address,
        scale=1,
        partitions=data.partitions,
        partition_method=data.partition_method,
        foreign_keys=data.foreign_keys,
    )


def plan_script_run(address: Address, workload: PlannedWorkload, name: str) -> LoadRun:
    """Return what runs one script of a workload with one client for a second."""
    return LoadRun(
        address=address,
        scripts=((name, 1),),
        mode=workload.mode,
        clients=1,
        threads=1,
        duration_s=_RUN_S,
        max_tries=workload.max_tries,
        random_seed=1,
        scale=1,
    )
