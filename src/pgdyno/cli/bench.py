"""Define the command `bench`."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.endpoints import EndpointOption, PoolModeOption, PoolSizeOption, read_endpoints
from pgdyno.cli.given_options import (
    AllowOption,
    DatabaseOption,
    DsnOption,
    InitOption,
    LoadHostOption,
    PasswordCommandOption,
    ServerAddressOption,
    ServerHostOption,
    put_load_hosts,
    read_allowed,
    take_password_command,
)
from pgdyno.cli.live import ListenOption, LiveOption, LiveOptions, MetricsPortOption
from pgdyno.cli.option_values import (
    data_table,
    given,
    put_emulated,
    refuse_others,
    server_table,
)
from pgdyno.cli.options import (
    BindirOption,
    ClientsOption,
    DiskOption,
    EmulateOption,
    HomeOption,
    JsonOption,
    ModeOption,
    OutOption,
    QuietOption,
    RateOption,
    RestoreCommandOption,
    RestoreOption,
    RunAsOption,
    ScaleOption,
    ServerOption,
    StandbysOption,
    ThreadsOption,
    WalHomeOption,
    YesOption,
)
from pgdyno.cli.over import go_over_if_named
from pgdyno.cli.session import session

BENCH_EXAMPLES = (
    "Examples:\n\n`pgdyno bench` · compare stock with derived settings on three workloads, then sweep clients: 15 minutes\n\n"
    "`pgdyno bench --quick` · the same on tpcb-like only, with wider intervals: 5 minutes\n\n"
    "`pgdyno bench --layers --workload tpcb-like` · also measure what each layer of settings gains: up to an hour\n\n"
    "`pgdyno bench --stock-only --workload select-only --mode prepared` · measure without comparing\n\n"
    "`pgdyno bench --server 15 --scale 100 --clients 16 --set shared_buffers=2GB` · the same setting in both variants\n\n"
    "`pgdyno bench --dsn postgresql://bench@db1/postgres --quick` · measure a server of yours as it stands: 5 minutes\n\n"
    "`pgdyno bench --server-host db1` · all of it on the machine that `ssh db1` reaches, where only Python 3.11 is needed\n\n"
    "`pgdyno bench --server-host db1 --load-host load1` · the server there, and pgbench on load1\n\n"
    "`pgdyno bench --quick --emulate hosts/c7g.2xlarge-gp3-raid10` · rehearse on the disks of another machine\n\n"
    "`pgdyno bench --workload pay.sql@3 --workload select-only@7` · mix your script and a built-in 3 to 7"
)


def bench(
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take 5 minutes: one workload (tpcb-like), wider intervals."),
    ] = False,
    stock_only: Annotated[
        bool,
        typer.Option(
            "--stock-only", help="Measure the server as it is: without derived settings, without a sweep over clients."
        ),
    ] = False,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers", help="Also measure the derived settings without each layer, to see which layers help."
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time limit of the whole job, which ends sooner if all is decided. Not with --quick, --stock-only, --rounds or"
            " --dsn. [default: 15; --quick: 5; --layers: 60; more if trials are long or many]",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="A built-in (tpcb-like, simple-update, select-only) or a script file; those with @WEIGHT are mixed into"
            " one workload. [default: the three built-ins; --quick: tpcb-like]",
            show_default=False,
        ),
    ] = None,
    scale: ScaleOption = None,
    clients: ClientsOption = None,
    threads: ThreadsOption = None,
    mode: ModeOption = None,
    rate: RateOption = None,
    latency_limit: Annotated[
        str | None, typer.Option(help="Count transactions slower than this, such as 20ms.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            "-T",
            help="Measured load of one trial, such as 60s. [default: 4s; --quick: 3s; --layers: 20s; --stock-only: 30s; --dsn: 20s,"
            " with --quick 10s]",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(
            help="Unmeasured load before it. [default: 1s; --layers: 3s; --stock-only: 5s; --dsn: 5s, with --quick 3s]",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Trials of each workload and variant. [default: from --minutes; --stock-only, --dsn: 5]",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[str | None, typer.Option(help="warm, cold or asis. [default: warm]", show_default=False)] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the trials' order and of pgbench's random numbers. [default: 1]", show_default=False
        ),
    ] = None,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    standbys: StandbysOption = None,
    endpoint: EndpointOption = None,
    pool_mode: PoolModeOption = None,
    pool_size: PoolSizeOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Server setting NAME=VALUE for both stock and derived; may be repeated.",
            show_default=False,
        ),
    ] = None,
    dsn: DsnOption = None,
    server_host: ServerHostOption = None,
    load_host: LoadHostOption = None,
    server_address: ServerAddressOption = None,
    init: InitOption = None,
    database: DatabaseOption = None,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    port: Annotated[
        int | None, typer.Option(help="Also listen on 127.0.0.1:PORT, so that psql can connect.", show_default=False)
    ] = None,
    design: Annotated[
        str | None,
        typer.Option(
            help="live (both servers are up, slices of load alternate between them) or paired (one trial after the other)."
            " [default: live, where it can be; --layers: paired]",
            show_default=False,
        ),
    ] = None,
    disk: DiskOption = True,
    out: OutOption = None,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    emulate: EmulateOption = None,
    restore: RestoreOption = None,
    restore_command: RestoreCommandOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    live: LiveOption = False,
    listen: ListenOption = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure PostgreSQL on this machine: with stock settings, with derived settings, and by number of clients."""
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        go_over_if_named(server_host, dsn=dsn, ui=ui)
        asked = [] if endpoint is None else [endpoint]
        through, poolers, replicas = read_endpoints(asked, dsn=dsn, mode=pool_mode, size=pool_size)
        load = given(
            clients=clients,
            threads=threads,
            mode=mode,
            rate_tps=rate,
            latency_limit=latency_limit,
            endpoint=through[0] if through else None,
        )
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.bench import bench as run_bench
        from pgdyno.flow.compose_bench import choose_goal, compose_study

        allowed = read_allowed(allow, dsn=dsn)
        take_password_command(password_command, dsn=dsn)
        if dsn is not None:
            from pgdyno.flow.given.bench import bench_given, compose_given
            from pgdyno.run.given.conninfo import hide_secrets

            own = {
                "server": server,
                "pg-bindir": pg_bindir,
                "set": settings,
                "port": port,
                "server-address": server_address,
                "standbys": standbys,
                "endpoint": endpoint if poolers else None,
                "home": home,
                "wal-home": wal_home,
                "emulate": emulate,
                "restore": restore,
                "restore-command": restore_command,
                "run-as": run_as,
            }
            questions = {"layers": layers, "minutes": minutes, "design": design}
            refuse_others("--dsn", **own, **questions)
            study = compose_given(
                dsn=hide_secrets(dsn),
                server_host=server_host,
                load_hosts=load_host or (),
                replicas=replicas,
                workloads=workload or [],
                load=load,
                data=data_table(scale=scale, init=init, database=database, workloads=workload),
                trials=given(rounds=rounds, duration=duration, warm_up=warm_up, cache=cache, seed=seed),
                is_quick=quick,
                folder=Path.cwd(),
            )
            place = Workspace.make(out=out, home=None, run_as=None)
            show(bench_given(study, dsn=dsn, allowed=allowed, sweeps_clients=not stock_only, place=place, ui=ui))
            return
        goal = choose_goal(is_quick=quick, is_stock_only=stock_only, is_layered=layers, minutes=minutes, rounds=rounds)
        tables = {
            "server": server_table(
                server=server, bindir=pg_bindir, port=port, settings=settings or [], standbys=standbys
            ),
            "data": data_table(
                scale=scale,
                init=init,
                database=database,
                wal_home=wal_home,
                restore=restore,
                restore_command=restore_command,
                workloads=workload,
            ),
            "trials": given(rounds=rounds, duration=duration, warm_up=warm_up, cache=cache, seed=seed),
            "experiment": given(minutes=minutes, design=design),
            "poolers": poolers,
        }
        study = compose_study(workloads=workload or [], load=load, tables=tables, goal=goal, folder=Path.cwd())
        study = put_emulated(put_load_hosts(study, load_host, address=server_address), emulate)
        place = Workspace.make(out=out, home=home, run_as=run_as)
        show(run_bench(study, goal=goal, rounds=rounds, measures_disk=disk, place=place, ui=ui))
