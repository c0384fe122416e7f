"""Define the commands `compare` and `sweep`, which give verdicts."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.endpoints import (
    EndpointOption,
    EndpointsOption,
    PoolModeOption,
    PoolSizeOption,
    read_endpoints,
    read_pooler_axes,
)
from pgdyno.cli.gate import BmfOption, FailIfOption, JunitOption, show_gated
from pgdyno.cli.given_options import (
    AllowOption,
    ApplyWithOption,
    DatabaseOption,
    DsnOption,
    InitOption,
    LoadHostOption,
    PasswordCommandOption,
    ServerAddressOption,
    ServerHostOption,
    check_apply_with,
    put_load_hosts,
    read_allowed,
    take_password_command,
)
from pgdyno.cli.live import ListenOption, LiveOption, LiveOptions, MetricsPortOption
from pgdyno.cli.option_values import (
    data_table,
    given,
    put_emulated,
    read_init_steps,
    refuse_others,
    server_table,
    split_places,
)
from pgdyno.cli.options import (
    BindirOption,
    ClientsOption,
    DiskOption,
    EmulateOption,
    FailoverOption,
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

WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help="A built-in or a script file; may be repeated. `init`: the load is `pgbench -i` itself. [default: tpcb-like]",
        show_default=False,
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(
        help="Time limit; the command ends sooner if all is decided. [default: from the plan]", show_default=False
    ),
]
DetectOption = Annotated[
    str | None, typer.Option(help="The smallest difference that matters. [default: 3%]", show_default=False)
]
ResolutionOption = Annotated[
    str | None,
    typer.Option(
        "--detect",
        help="The smallest difference that matters; for a latency limit, the resolution of its rate. [default: 3%; for a"
        " latency limit 10%]",
        show_default=False,
    ),
]
ConfidenceOption = Annotated[
    str | None, typer.Option(help="Level of verdicts and of their intervals. [default: 95%]", show_default=False)
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        help="switchback (settings alternate in slices of one load), live (all servers are up, and slices alternate among"
        " them; loads that differ only in clients, threads or mode take turns on one) or paired (one trial after the"
        " other). [default: by the cost of changing the settings]",
        show_default=False,
    ),
]
DurationOption = Annotated[
    str | None,
    typer.Option(
        "--duration",
        "-T",
        help="Measured load of each variant in a round; a switchback chooses its own. [default: 10s, or 4s if variants differ only in clients, threads or mode]",
        show_default=False,
    ),
]
WarmUpOption = Annotated[str | None, typer.Option(help="Unmeasured load before it. [default: 3s]", show_default=False)]
SeedOption = Annotated[int | None, typer.Option(help="Seed of everything random. [default: 1]", show_default=False)]


def compare(
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            help="`stock`, or files with settings as in postgresql.conf; the first is the reference.",
            show_default=False,
        ),
    ] = None,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help='NAME=VALUE, or several in quotes; each --set is a variant. A single one is compared with "as it is".',
        ),
    ] = None,
    sysctl: Annotated[
        list[str] | None,
        typer.Option(
            "--sysctl",
            help="Kernel setting NAME=VALUE: a sysctl, a path below /sys, or mount:FOLDER:OPTION for a mount option; each --sysctl is"
            " a variant. Needs root.",
        ),
    ] = None,
    initdb: Annotated[
        list[str] | None,
        typer.Option(
            "--initdb",
            help="NAME=VALUE of the cluster: checksums, wal_segment_size, encoding, locale or locale_provider; each --initdb is"
            " a variant.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="embedded, a major version or a program folder; two or more are compared."),
    ] = None,
    standbys: StandbysOption = None,
    failover: FailoverOption = None,
    endpoint: EndpointsOption = None,
    pool_mode: PoolModeOption = None,
    pool_size: PoolSizeOption = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", "-M", help="simple, extended or prepared; two or more are compared."),
    ] = None,
    clients: Annotated[
        list[str] | None, typer.Option("--clients", "-c", help="Connections; two or more are compared.")
    ] = None,
    threads: Annotated[
        list[str] | None, typer.Option("--threads", "-j", help="pgbench's threads; two or more are compared.")
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option("--scale", help="pgbench's scale factor; two or more are compared.")
    ] = None,
    script: Annotated[
        list[str] | None,
        typer.Option(
            "--script",
            help="A script file or a built-in as the load of one variant, in place of --workload; two or more, whose"
            " transactions do the same work, are compared.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        list[str] | None,
        typer.Option("--cache", help="Caches when a trial begins: warm, cold or asis; two or more are compared."),
    ] = None,
    dsn: DsnOption = None,
    server_host: ServerHostOption = None,
    load_host: LoadHostOption = None,
    server_address: ServerAddressOption = None,
    init: InitOption = None,
    database: DatabaseOption = None,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    apply_with: ApplyWithOption = None,
    workload: WorkloadOption = None,
    init_steps: Annotated[
        str | None,
        typer.Option(
            help="How pgbench loads: dtgvp, dtGvp (the server generates the rows), dtgvpf or dtGvpf (also foreign keys)."
            " [default: dtgvp]",
            show_default=False,
        ),
    ] = None,
    minutes: MinutesOption = None,
    detect: DetectOption = None,
    confidence: ConfidenceOption = None,
    design: DesignOption = None,
    rate: RateOption = None,
    duration: DurationOption = None,
    warm_up: WarmUpOption = None,
    seed: SeedOption = None,
    disk: DiskOption = True,
    fail_if: FailIfOption = None,
    junit: JunitOption = None,
    bmf: BmfOption = None,
    out: OutOption = None,
    home: Annotated[
        list[Path] | None,
        typer.Option(
            "--home",
            help="Folder for pgdyno's clusters; two or more, on several disks, are compared. [default: /var/lib/pgdyno for"
            " root, else ~/.local/share/pgdyno]",
            show_default=False,
        ),
    ] = None,
    wal_home: Annotated[
        list[Path] | None,
        typer.Option(
            "--wal-home",
            metavar="DIR",
            help="Folder for pg_wal, on a disk of its own; it must exist. none: pg_wal lies with the data. Two or more are"
            " compared.",
            show_default=False,
        ),
    ] = None,
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
    """Compare settings, versions, modes or kernel settings, and give a verdict with a known error rate."""
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        go_over_if_named(server_host, dsn=dsn, ui=ui)
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.compare import compose_comparison
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.given.bench import put_on_given
        from pgdyno.flow.run import run_study

        gate = plan_gate(fail_if or [], junit=junit, bmf=bmf)
        allowed = read_allowed(allow, dsn=dsn)
        take_password_command(password_command, dsn=dsn)
        check_apply_with(apply_with, dsn=dsn)
        endpoints, poolers, replicas = read_endpoints(endpoint or [], dsn=dsn, mode=pool_mode, size=pool_size)
        single_home, homes = split_places(home)
        single_wal_home, wal_homes = split_places([] if wal_home == [Path("none")] else wal_home)
        study = compose_comparison(
            variants=variants or [],
            varied={
                "set": settings or [],
                "sysctl": sysctl or [],
                "initdb": initdb or [],
                "server": server or [],
                "mode": mode or [],
                "clients": clients or [],
                "threads": threads or [],
                "endpoint": endpoints,
                "scale": scale or [],
                "cache": cache or [],
                "script": script or [],
                "home": homes,
                "wal-home": wal_homes,
            },
            workloads=workload or [],
            load=given(rate_tps=rate),
            tables={
                "server": given(standbys=standbys),
                "failover": given(how=failover),
                "data": data_table(
                    scale=None,
                    init=init,
                    database=database,
                    wal_home=single_wal_home,
                    restore=restore,
                    restore_command=restore_command,
                    workloads=workload or script,
                )
                | read_init_steps(init_steps),
                "trials": given(duration=duration, warm_up=warm_up, seed=seed),
                "experiment": given(minutes=minutes, detect=detect, confidence=confidence, design=design),
                "poolers": poolers,
            },
            folder=Path.cwd(),
        )
        check_gate(gate, study)
        if dsn is not None:
            refuse_others(
                "--dsn",
                server_address=server_address,
                standbys=standbys,
                failover=failover,
                home=home,
                wal_home=wal_home,
                run_as=run_as,
                restore=restore,
                restore_command=restore_command,
            )
            study = put_on_given(
                study,
                dsn=dsn,
                server_host=server_host,
                load_hosts=load_host or (),
                apply_with=apply_with,
                replicas=replicas,
            )
        else:
            study = put_load_hosts(study, load_host, address=server_address)
        study = put_emulated(study, emulate)
        place = Workspace.make(out=out, home=single_home, run_as=run_as)
        report = run_study(study, dsn=dsn, allowed=allowed, name="compare", place=place, ui=ui, measures_disk=disk)
        show_gated(apply_gate(gate, report), show, json=json)


def sweep(
    axes: Annotated[
        list[str],
        typer.Argument(
            help="NAME=LEVEL,LEVEL,… or NAME=FIRST..LAST (doubling): a setting, a sysctl, clients, threads, load_hosts,"
            " mode, scale, endpoint, pool_size, server, cache, home, wal_home, or a choice of initdb such as checksums. Two axes: every combination. Or 'latency<LIMIT@pQQ', in quotes for the shell: find the largest"
            " rate that holds the limit; the default is p99.",
            show_default=False,
        ),
    ],
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Server setting NAME=VALUE for all levels; may be repeated.")
    ] = None,
    sysctl: Annotated[
        str | None,
        typer.Option(
            help="Kernel setting NAME=VALUE for all levels, or several in quotes. Needs root.", show_default=False
        ),
    ] = None,
    initdb: Annotated[
        str | None,
        typer.Option(help="NAME=VALUE of the cluster for all levels, or several in quotes.", show_default=False),
    ] = None,
    cache: Annotated[str | None, typer.Option(help="warm, cold or asis. [default: warm]", show_default=False)] = None,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    standbys: StandbysOption = None,
    endpoint: EndpointOption = None,
    pool_mode: PoolModeOption = None,
    pool_size: PoolSizeOption = None,
    dsn: DsnOption = None,
    server_host: ServerHostOption = None,
    load_host: LoadHostOption = None,
    server_address: ServerAddressOption = None,
    init: InitOption = None,
    database: DatabaseOption = None,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    apply_with: ApplyWithOption = None,
    mode: ModeOption = None,
    clients: ClientsOption = None,
    scale: ScaleOption = None,
    workload: WorkloadOption = None,
    minutes: MinutesOption = None,
    detect: ResolutionOption = None,
    confidence: ConfidenceOption = None,
    design: DesignOption = None,
    rate: RateOption = None,
    threads: ThreadsOption = None,
    duration: DurationOption = None,
    warm_up: WarmUpOption = None,
    seed: SeedOption = None,
    disk: DiskOption = True,
    fail_if: FailIfOption = None,
    junit: JunitOption = None,
    bmf: BmfOption = None,
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
    """Vary one or two parameters over several levels, or find the largest rate that holds a latency limit."""
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        go_over_if_named(server_host, dsn=dsn, ui=ui)
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.compare import compose_sweep
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.given.bench import put_on_given
        from pgdyno.flow.run import run_study

        gate = plan_gate(fail_if or [], junit=junit, bmf=bmf)
        allowed = read_allowed(allow, dsn=dsn)
        take_password_command(password_command, dsn=dsn)
        check_apply_with(apply_with, dsn=dsn)
        axes, through, poolers, replicas = read_pooler_axes(axes, endpoint, dsn=dsn, mode=pool_mode, size=pool_size)
        study = compose_sweep(
            axes=axes,
            workloads=workload or [],
            load=given(clients=clients, threads=threads, mode=mode, rate_tps=rate, endpoint=through),
            tables={
                "server": server_table(
                    server=server, bindir=pg_bindir, port=None, settings=settings or [], standbys=standbys
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
                "trials": given(duration=duration, warm_up=warm_up, seed=seed),
                "experiment": given(minutes=minutes, detect=detect, confidence=confidence, design=design),
                "poolers": poolers,
            },
            folder=Path.cwd(),
            shared={
                name: text
                for name, text in (("sysctl", sysctl), ("initdb", initdb), ("cache", cache))
                if text is not None
            },
        )
        check_gate(gate, study)
        if dsn is not None:
            refuse_others(
                "--dsn",
                server_address=server_address,
                standbys=standbys,
                home=home,
                wal_home=wal_home,
                run_as=run_as,
                restore=restore,
                restore_command=restore_command,
            )
            study = put_on_given(
                study,
                dsn=dsn,
                server_host=server_host,
                load_hosts=load_host or (),
                apply_with=apply_with,
                replicas=replicas,
            )
        else:
            study = put_load_hosts(study, load_host, address=server_address)
        study = put_emulated(study, emulate)
        place = Workspace.make(out=out, home=home, run_as=run_as)
        report = run_study(study, dsn=dsn, allowed=allowed, name="sweep", place=place, ui=ui, measures_disk=disk)
        show_gated(apply_gate(gate, report), show, json=json)


COMPARE_EXAMPLES = (
    "Examples:\n\n`pgdyno compare --set commit_delay=0 --set commit_delay=50`\n\n"
    "`pgdyno compare stock tuned.conf --workload tpcb-like --workload select-only`\n\n"
    "`pgdyno compare --server 15 --server 18 --mode prepared --minutes 20`\n\n"
    "`pgdyno compare --set synchronous_commit=off --detect 5%` · compare with the server as it is\n\n"
    "`pgdyno compare --set synchronous_commit=off --dsn postgresql://bench@db1/postgres` · on a server of yours\n\n"
    "`pgdyno compare --set bgwriter_delay=20ms --dsn service=bench` · a setting of the whole server, after asking\n\n"
    "`pgdyno compare --set shared_buffers=4GB --dsn service=bench --apply-with ./apply.sh` · by a command of yours, which"
    " may restart the server\n\n"
    "`pgdyno compare --script join.sql --script lateral.sql` · two ways to do the same work\n\n"
    "`pgdyno compare --set synchronous_commit=local --set synchronous_commit=on --set synchronous_commit=remote_apply"
    " --standbys 1` · what does it cost to wait for a standby?\n\n"
    "`pgdyno compare --set synchronous_commit=local --set synchronous_commit=on --standbys 1 --failover crash` · how long is the"
    " service away when the primary dies, and what is lost?\n\n"
    "`pgdyno compare --endpoint primary --endpoint pool --clients 64` · is a connection pooler faster or slower?\n\n"
    "`pgdyno compare --endpoint primary --endpoint replicas --standbys 1 --workload select-only` · is a standby as fast for reading?\n\n"
    "`pgdyno compare --wal-home none --wal-home /mnt/wal` · one disk, or one more for pg_wal?\n\n"
    "`pgdyno compare --home /mnt/a --home /mnt/b` · which disk is faster for this load?\n\n"
    "`pgdyno compare --initdb checksums=on --initdb checksums=off` · what do checksums cost?\n\n"
    "`pgdyno compare --workload init --set maintenance_work_mem=64MB --set maintenance_work_mem=1GB` · what makes loading"
    " faster, and which step?\n\n"
    "`pgdyno compare --server base/bin --server pr/bin --fail-if slower --junit pgdyno.xml` · a gate for CI"
)
SWEEP_EXAMPLES = (
    "Examples:\n\n`pgdyno sweep clients=1..64` · find scaling, knee and peak\n\n"
    "`pgdyno sweep commit_delay=0,10,20,50,100 --mode prepared`\n\n"
    "`pgdyno sweep mode=simple,extended,prepared clients=1,8`\n\n"
    "`pgdyno sweep clients=8..64 endpoint=primary,pool --workload select-only --scale 10` · from how many clients on does a"
    " pooler pay?\n\n"
    "`pgdyno sweep pool_size=2..32 --clients 64` · how large should the pool be?\n\n"
    "`pgdyno sweep 'latency<20ms@p99' --detect 10%` · find the largest rate that holds the limit, to 10 %\n\n"
    "`pgdyno sweep clients=1..64 --dsn postgresql://bench@db1/postgres` · on a server of yours"
)
