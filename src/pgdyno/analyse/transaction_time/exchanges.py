"""Count the exchanges of a transaction: how often its client sends something and waits for the answer.

An SQL command is one exchange in each query mode; the first Prepare of each client is not counted. A pipeline is one
exchange, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.pgbench.output import PgbenchSummary

BUILTIN_EXCHANGES = {"tpcb-like": 7, "simple-update": 5, "select-only": 1}
"""By built-in script. Source: PostgreSQL 18 src/bin/pgbench/pgbench.c, builtin_script."""


class UncountableError(Exception):
    """Why exchanges cannot be counted."""


def count_exchanges(
    workload: PlannedWorkload, warm_up: PgbenchSummary | None, load: PgbenchSummary | None, *, part: str = ""
) -> float:
    """Count the exchanges of an average transaction.

    Args:
        workload: The load.
        warm_up: pgbench's summary of the warm-up, which lists the commands of script files; None without a warm-up.
        load: pgbench's summary of the measured load, with the transactions of each script if there are several; None if it was
            not read.
        part: Name of the part of the load that is meant, of which `load` is then the summary; empty: the whole load.

    Raises:
        UncountableError: They cannot be counted, with the reason.
    """
    scripts, first = workload.scripts, 1
    for one in workload.parts if part else ():
        if one.name == part:
            scripts = one.scripts
            break
        first += len(one.scripts)
    counts = [_count_in(name, number, warm_up) for number, (name, _) in enumerate(scripts, start=first)]
    counted = {} if load is None else {script.number: script.transaction_count or 0 for script in load.scripts}
    ran = [counted.get(number, 0) for number in range(1, len(scripts) + 1)]
    weights = ran if any(ran) else [weight for _, weight in scripts]
    return sum(count * weight for count, weight in zip(counts, weights, strict=True)) / sum(weights)


def _count_in(name: str, number: int, warm_up: PgbenchSummary | None) -> int:
    if name in BUILTIN_EXCHANGES:
        return BUILTIN_EXCHANGES[name]
    if warm_up is None:
        raise UncountableError("there was no warm-up, and only then does pgbench list the commands of a script")
    # Scripts of a part in which no transaction ended are not listed: places would be those of other scripts.
    listed = {script.number: script.statements for script in warm_up.scripts} or {1: warm_up.statements}
    if not (statements := listed.get(number)):
        raise UncountableError("pgbench listed no commands of a script")
    return count_in_script([statement.text for statement in statements])


def count_in_script(commands: Sequence[str]) -> int:
    r"""Count the exchanges of a script's commands, each given by its first line.

    Raises:
        UncountableError: SQL commands stand within \if.
    """
    count = branches = 0
    is_pipelined = False
    for command in commands:
        words = command.split()
        meta = words[0] if words and words[0].startswith("\\") else None
        branches += (meta == "\\if") - (meta == "\\endif")
        if meta in {"\\startpipeline", "\\endpipeline"}:
            is_pipelined = meta == "\\startpipeline"
        if meta == "\\endpipeline" or (meta is None and not is_pipelined):
            if branches:
                raise UncountableError("which commands of a script ran depends on its \\if")
            count += 1
    return count
