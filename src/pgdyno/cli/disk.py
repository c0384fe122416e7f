"""Define the command `disk`: measure storage paths, show and compare disk cards, compute limits of layouts."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.option_values import choose, read_amount, server_table
from pgdyno.cli.options import BindirOption, HomeOption, JsonOption, QuietOption, ServerOption, YesOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

DISK_EXAMPLES = (
    "Examples:\n\n`pgdyno disk` · the disk of pgdyno's home, in up to 4 minutes\n\n"
    "`pgdyno disk --quick /var/lib/postgresql` · another disk, in up to 40 seconds\n\n"
    "`pgdyno disk --file-size 64GB --run-time 60s` · a file larger than the disk's caches, and runs that outlast a burst\n\n"
    "`pgdyno disk /data /wal --host c7g.2xlarge` · data and WAL, compared with the limits of the instance\n\n"
    "`pgdyno disk --layout --host db1.toml` · compute the limits of a declared layout without measuring\n\n"
    "`pgdyno disk --layout --host db1.toml --form commands > db1.sh` · write the commands that make it\n\n"
    "`pgdyno disk --compare gp3.json io2.json planned.toml` · compare cards and a host file"
)
RunTimeOption = Annotated[
    str | None,
    typer.Option(help="Time of each run of fio, such as 60s. [default: 1.25s, with --quick 0.75s]", show_default=False),
]


def disk(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Folders on the disks to measure, data before WAL. With --show: cards. With --compare: cards and host"
            " files. [default: pgdyno's home]",
            show_default=False,
        ),
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take up to 40 seconds for each path instead of 4 minutes.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Measure nothing: compare cards with the first one.")
    ] = False,
    shown: Annotated[bool, typer.Option("--show", help="Measure nothing: show existing cards.")] = False,
    layout: Annotated[
        bool,
        typer.Option("--layout", help="Measure nothing: compute the limits of a layout, declared or on this machine."),
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            help="With --layout and --host: table, or commands for a shell script that makes the declared storage."
        ),
    ] = "table",
    host: Annotated[
        str | None,
        typer.Option(
            help="Declared machine to compare with: an instance such as c7g.2xlarge, or a host file.",
            show_default=False,
        ),
    ] = None,
    run_time: RunTimeOption = None,
    file_size: Annotated[
        str | None,
        typer.Option(
            help="Size of the test file, such as 16GB: up to half of the free space. [default: 2GB, with --quick 512MB, but no"
            " more than a quarter of the free space]",
            show_default=False,
        ),
    ] = None,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for cards, or file NAME.json of the card. [default: pgdyno-disks]", show_default=False
        ),
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Install fio if it is missing (Debian, Ubuntu).")] = False,
    home: HomeOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure disks: IOPS, MB/s, latency, flushes per second, and what they mean for PostgreSQL.

    Only pgdyno's own test file is read and written. It has no name, so that it is gone when the command ends, even
    after a crash. `tune` and `bench` find the card that the command writes.
    """
    with session(json=json, quiet=quiet, yes=yes) as (ui, show):
        from pgdyno.cli.terminal.output import write_out
        from pgdyno.flow.check import make_default_study
        from pgdyno.flow.disk import DiskQuestion, check_paths, measure_disks
        from pgdyno.flow.disk_view import compare_cards, read_declared, show_cards
        from pgdyno.flow.layout import LayoutForm, show_layouts, write_storage_script
        from pgdyno.run.cluster.home import choose_home, find_existing_folder

        named, place = paths or [], choose_home(home)
        is_script = choose("--form", form, LayoutForm) is LayoutForm.COMMANDS
        if is_script and (not layout or host is None or named or json):
            raise SpecError(
                "--form commands goes with --layout and --host only",
                hint="for example `pgdyno disk --layout --host db1.toml --form commands`",
            )
        measuring = {
            "quick": quick,
            "file_size": file_size,
            "run_time": run_time,
            "out": out,
            "install": install,
        }
        if compare:
            _refuse_others("--compare", show=shown, layout=layout, host=host, **measuring)
            show(compare_cards(named))
            return
        if shown:
            _refuse_others("--show", layout=layout, **measuring)
            show(show_cards(named, host=host))
            return
        if layout:
            _refuse_others("--layout", **measuring)
            declared = read_declared(host)
            if is_script and declared is not None:
                script = write_storage_script(declared)
                ui.close()
                write_out(script)
                return
            folders = check_paths(named if named or host is not None else [find_existing_folder(place)])
            show(show_layouts(folders, declared))
            return
        table = server_table(server=server, bindir=pg_bindir, port=None, settings=[])
        result = measure_disks(
            DiskQuestion(
                paths=tuple(named),
                is_quick=quick,
                server=make_default_study(table, scale=None, clients=None).server,
                host=host,
                home=place,
                out=out,
                may_install=install,
                file_bytes=read_amount("--file-size", file_size, "B", "16GB"),
                runtime_s=read_amount("--run-time", run_time, "s", "60s"),
            ),
            ui,
        )
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)


def _refuse_others(what: str, **options: object) -> None:
    others = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if others:
        raise SpecError(f"{what} measures nothing: leave out {', '.join(others)}")
