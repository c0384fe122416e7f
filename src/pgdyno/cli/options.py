"""Define the options that several commands share, each with one name, meaning and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for pgdyno's clusters, on the disk to measure. [default: /var/lib/pgdyno for root,"
        " else ~/.local/share/pgdyno]",
        show_default=False,
    ),
]
WalHomeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for pg_wal, on a disk of its own; it must exist. [default: pg_wal lies with the data]",
        show_default=False,
    ),
]
EmulateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="HOST.toml",
        help="Run on an emulation of the disks and the size of a host file's machine; `studies` lists some. Needs root.",
        show_default=False,
    ),
]
RestoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="copy: each trial begins with the data as loaded. none: with what the trial before left, for loads that only read,"
        " or whose data may age. [default: copy]",
        show_default=False,
    ),
]
RestoreCommandOption = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Have this command restore the data before each trial, such as from a snapshot; docs/guide/restoring.md has examples.",
        show_default=False,
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(
        help="Account for PostgreSQL when pgdyno runs as root. [default: postgres, else nobody]",
        show_default=False,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(help="`embedded` or an installed major version such as 15. [default: embedded]", show_default=False),
]
BindirOption = Annotated[
    Path | None, typer.Option(help="Folder with the programs of another PostgreSQL.", show_default=False)
]
StandbysOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Standbys on this machine that stream from the server, each with a copy of the data. [default: none]",
        show_default=False,
    ),
]
FailoverOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="End the primary in the middle of each trial, let a standby take over, and compare the time without service: crash (all"
        " its processes are killed) or stop (a fast shutdown). Needs --standbys.",
        show_default=False,
    ),
]
ScaleOption = Annotated[
    int | None,
    typer.Option(
        help="pgbench's scale factor, 15 MB per unit. [default: from the machine; --dsn: 50]", show_default=False
    ),
]
ClientsOption = Annotated[
    int | None,
    typer.Option("--clients", "-c", help="Connections. [default: 4 for each CPU; --dsn: 8]", show_default=False),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", "-j", help="pgbench's threads. [default: one for each CPU]", show_default=False),
]
ModeOption = Annotated[
    str | None,
    typer.Option("--mode", "-M", help="simple, extended or prepared. [default: simple]", show_default=False),
]
RateOption = Annotated[
    float | None, typer.Option(help="Open loop: schedule this many transactions per second.", show_default=False)
]
DiskOption = Annotated[
    bool,
    typer.Option(
        "--disk/--no-disk",
        help="First measure the disks of data and --wal-home, each in up to 40 s, unless the home has a card of the last"
        " 24 hours.",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder for the record. [default: pgdyno-records/TIME-NAME]", show_default=False)
]
RecordArgument = Annotated[
    Path | None, typer.Argument(help="Folder of a record. [default: the newest]", show_default=False)
]
RecordsOption = Annotated[Path, typer.Option("--records", help="Folder that holds records.")]
DEFAULT_RECORDS = Path("pgdyno-records")
