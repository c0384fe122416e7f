"""Describe what pgbench is asked to do, and build its command lines. Pure: values in, arguments out.

Everything that could differ from run to run, or from version to version, is stated explicitly and not left to pgbench's
defaults, so that the recorded command line tells everything.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.record.types import INITIALIZE
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec, GenerateAt, PartitionMethod
from pgdyno.spec.table import QueryMode

# With this option pgbench ends at the first client that aborts; before 17 it goes on with the others. Source: release
# notes of 17.
_EXIT_ON_ABORT_SINCE = 17


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of pgbench against loaded data.

    Attributes:
        address: The server and the database.
        scripts: Built-in names or absolute paths of script files, each with its weight.
        mode: The protocol for queries.
        clients: The number of connections.
        threads: The number of pgbench's threads.
        load_hosts: The number of load hosts that take part, where there are some; None: all.
        duration_s: The duration in whole seconds.
        rate_tps: The scheduled rate; None: as fast as possible.
        latency_limit_ms: Slower transactions are counted; with a rate, transactions that cannot meet it are skipped.
        max_tries: The number of tries for a transaction that fails by serialization or deadlock.
        random_seed: The seed of pgbench's random numbers; None leaves it to pgbench.
        scale: The value of `:scale` in script files. With a built-in among the scripts, pgbench counts the branches
            itself.
        log_prefix: The path prefix of the transaction log, to which pgbench adds its process id; None: no log.
        sampling_rate: The share of transactions that are logged, in (0, 1]; None: all.
        reports_statements: Whether to measure each statement.
        ends_on_abort: Whether the first client that loses its connection ends the run as failed; else it ends with the last
            one, and keeps what it has counted.
    """

    address: Address
    scripts: tuple[tuple[str, int], ...]
    mode: QueryMode
    clients: int
    threads: int
    load_hosts: int | None = None
    duration_s: float
    rate_tps: float | None = None
    latency_limit_ms: float | None = None
    max_tries: int = 1
    random_seed: int | None = None
    scale: int | None = None
    log_prefix: Path | None = None
    sampling_rate: float | None = None
    reports_statements: bool = True
    ends_on_abort: bool = True


class InitRun(msgspec.Struct, frozen=True, kw_only=True):
    """One `pgbench -i`. `partition_method` counts when `partitions` is above 0."""

    address: Address
    scale: int
    fillfactor: int = 100
    partitions: int = 0
    partition_method: PartitionMethod = PartitionMethod.RANGE
    foreign_keys: bool = False
    generate: GenerateAt = GenerateAt.CLIENT


def make_init_run(address: Address, data: DataSpec, scale: int) -> InitRun:
    """Return the run of pgbench that loads the data of a study."""
    return InitRun(
        address=address,
        scale=scale,
        fillfactor=data.fillfactor,
        partitions=data.partitions,
        partition_method=data.partition_method,
        foreign_keys=data.foreign_keys,
        generate=data.generate,
    )


def build_argv(run: LoadRun, program: str, version_major: int) -> tuple[str, ...]:
    """Build the command line of a load.

    Args:
        run: The load to run.
        program: The path of pgbench.
        version_major: The major version of pgbench; 15 to 18 differ in one option only.
    """
    is_all_files = all(name not in BUILTIN_SCRIPTS for name, _ in run.scripts)
    optional = {
        "rate": run.rate_tps,
        "latency-limit": run.latency_limit_ms,
        "random-seed": run.random_seed,
        # With a built-in script, pgbench would only warn that it counts the branches itself.
        "scale": run.scale if is_all_files else None,
        "log-prefix": run.log_prefix,
        "sampling-rate": run.sampling_rate,
    }
    flags = {
        "report-per-command": run.reports_statements,
        "log": run.log_prefix is not None,
        "exit-on-abort": run.ends_on_abort and version_major >= _EXIT_ON_ABORT_SINCE,
    }
    return (
        program,
        "--no-vacuum",
        f"--client={run.clients}",
        f"--jobs={run.threads}",
        f"--time={run.duration_s:.0f}",
        f"--protocol={run.mode.value}",
        f"--max-tries={run.max_tries}",
        "--failures-detailed",
        "--progress=1",
        *(f"--{name}={value}" for name, value in optional.items() if value is not None),
        *(f"--{name}" for name, is_set in flags.items() if is_set),
        *(f"--{'builtin' if name in BUILTIN_SCRIPTS else 'file'}={name}@{weight}" for name, weight in run.scripts),
        *connect_options(run.address),
    )


def build_init_argv(run: InitRun, program: str) -> tuple[str, ...]:
    """Build the command line of `pgbench -i`: drop, create, generate, vacuum, primary keys, optional foreign keys."""
    generate = "G" if run.generate is GenerateAt.SERVER else "g"
    partitioning = (f"--partitions={run.partitions}", f"--partition-method={run.partition_method.value}")
    return (
        program,
        INITIALIZE,
        f"--scale={run.scale}",
        f"--fillfactor={run.fillfactor}",
        f"--init-steps=dt{generate}vp{'f' if run.foreign_keys else ''}",
        *(partitioning if run.partitions else ()),
        *connect_options(run.address),
    )


def connect_options(address: Address) -> tuple[str, ...]:
    """Return the last arguments of a command line: where pgbench connects."""
    if not address.is_plain:
        return (address.conninfo(),)
    # The database is positional: -d means debug before PostgreSQL 17.
    return (f"--host={address.host}", f"--port={address.port}", f"--username={address.user}", address.dbname)
