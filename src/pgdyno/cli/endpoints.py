"""Define the options of commands whose load may connect to standbys or a pooler, and read what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.option_values import choose, given
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.spec.topology import TopologySpec

_PRIMARY, _REPLICAS = "primary", "replicas"
_ENDPOINT_AXIS, _SIZE_AXIS = "endpoint=", "pool_size="
_POOL = "pool"
_EXAMPLE_SIZES = "for example pool_size=2,4,8 or pool_size=2..32"

EndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What the clients connect to: primary; replicas, the standbys of --standbys, for loads that only read; or any other name"
        " for a PgBouncer that pgdyno starts. With --dsn replicas=CONNINFO, replicas that run already. [default: primary]",
        show_default=False,
    ),
]
EndpointsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="NAME",
        help="What the clients connect to: primary; replicas, the standbys of --standbys, for loads that only read; or any other name"
        " for a PgBouncer that pgdyno starts; with --dsn NAME=CONNINFO, a pooler that runs already, and replicas=CONNINFO, replicas of that"
        " server, which get what it loads. Two or more are compared.",
        show_default=False,
    ),
]
PoolModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="transaction or session: at whose end a pooler takes a server connection back. [default: transaction]",
        show_default=False,
    ),
]
PoolSizeOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Server connections of a PgBouncer that pgdyno starts. [default: 2 for each CPU and one for the disk]",
        show_default=False,
    ),
]

PoolerOption = Annotated[
    bool,
    typer.Option(
        "--pooler",
        help="PgBouncer stands in front of the server: derive its settings, and max_connections from its pool.",
    ),
]
TunedPoolSizeOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Server connections of the pool, instead of deriving them; with --pooler.",
        show_default=False,
    ),
]
TunedStandbysOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Standbys that stream from the server, each with a slot. [default: none]", show_default=False
    ),
]


def check_standbys(count: int, *, none: str) -> None:
    """Refuse a number of standbys that no server has; `none` says what 0 does.

    Raises:
        SpecError: It is out of range.
    """
    from pgdyno.spec.topology import MOST_STANDBYS  # noqa: PLC0415 - --help needs no types

    if not 0 <= count <= MOST_STANDBYS:
        raise SpecError(f"--standbys {count}: not within 0 to {MOST_STANDBYS}", hint=none)


def read_topology(*, standbys: int | None, pooler: bool, mode: str | None, size: int | None) -> TopologySpec:
    """Read what stands around a server; a pool's mode says that there is a pooler, too.

    Raises:
        SpecError: A number is out of range, or no such mode is known.
    """
    from pgdyno.spec.pooler import PoolMode  # noqa: PLC0415 - --help needs no types
    from pgdyno.spec.topology import TopologySpec  # noqa: PLC0415

    named = None if mode is None else choose("--pool-mode", mode, PoolMode)
    if named is None and pooler:
        named = PoolMode.TRANSACTION
    if standbys is not None:
        check_standbys(standbys, none="0 derives for the server alone")
    try:
        return TopologySpec(standbys=standbys, pooler=named, pool_size=size)
    except ValueError as exc:
        raise SpecError(f"--{str(exc).replace('pool_size', 'pool-size', 1)}") from exc


def read_endpoints(
    endpoints: Sequence[str], *, dsn: str | None, mode: str | None, size: int | None
) -> tuple[list[str], dict[str, object], list[str]]:
    """Read endpoints into their names, a study's tables of poolers, and the connection strings of replicas.

    Args:
        endpoints: Names, `NAME=CONNINFO` of poolers that run already, or `replicas=CONNINFO`.
        dsn: The connection string of a given server; None for pgdyno's own.
        mode: Of all poolers.
        size: Of all pools.

    Raises:
        SpecError: One name means two poolers, or the primary or standbys of pgdyno's own are given a connection string.
    """
    names: list[str] = []
    poolers: dict[str, object] = {}
    replicas: dict[str, None] = {}
    for text in endpoints:
        name, equals, conninfo = text.partition("=")
        # Each further one names more of them.
        if name != _REPLICAS or not replicas:
            names.append(name)
        if equals:
            _check_conninfo(name, conninfo, dsn=dsn)
        if name == _REPLICAS and equals:
            replicas[conninfo] = None
        if name in {_PRIMARY, _REPLICAS}:
            continue
        table = given(mode=mode, size=size, dsn=conninfo if equals else None)
        if poolers.setdefault(name, table) != table:
            raise SpecError(f"--endpoint {name} comes twice with two meanings", hint="give each pooler its own name")
    if not poolers:
        for option, value in (("--pool-mode", mode), ("--pool-size", size)):
            if value is not None:
                raise SpecError(f"{option} {value}: no pooler is named", hint="name one with --endpoint pool")
    return names, poolers, list(replicas)


def _check_conninfo(name: str, conninfo: str, *, dsn: str | None) -> None:
    if name == _PRIMARY:
        raise SpecError(
            "--endpoint primary=CONNINFO: the primary is the server itself", hint="--dsn says where that is reached"
        )
    if name != _REPLICAS:
        return
    if dsn is None:
        raise SpecError(
            "--endpoint replicas=CONNINFO: replicas of a server of pgdyno's own are the standbys that it starts",
            hint="--standbys N says how many; --dsn names a server whose replicas these are",
        )
    if not conninfo.strip():
        raise SpecError(
            "--endpoint replicas= names no replica", hint="for example --endpoint replicas='host=db2,db3 user=bench'"
        )


def read_pooler_axes(
    axes: Sequence[str], endpoint: str | None, *, dsn: str | None, mode: str | None, size: int | None
) -> tuple[list[str], str | None, dict[str, object], list[str]]:
    """Read the axes of a sweep that vary poolers, and the endpoint of all levels.

    Sizes of a pool become poolers of their own: `pool_size=2,8` is `endpoint=pool2,pool8`.

    Returns:
        The axes, the endpoint of all levels or None, the tables of poolers, and the connection strings of replicas.

    Raises:
        SpecError: As for `read_endpoints`; a size is no whole number; or a level has a connection string.
    """
    from pgdyno.flow.comparison_options import read_levels  # noqa: PLC0415 - --help needs no flow

    written, varied, sizes = [], [] if endpoint is None else [endpoint], {}
    for axis in axes:
        levels = axis.partition("=")[2]
        if axis.startswith(_ENDPOINT_AXIS):
            varied += _read_names(levels, dsn=dsn)
        if not axis.startswith(_SIZE_AXIS):
            written.append(axis)
            continue
        sizes = {f"{_POOL}{level}": _read_size(axis, level) for level in read_levels(axis, levels)}
        if len(sizes) < 2:
            raise SpecError(f"{axis}: a sweep needs at least two sizes", hint=_EXAMPLE_SIZES)
        written.append(_ENDPOINT_AXIS + ",".join(sizes))
    if sizes:
        if dsn is not None:
            raise SpecError(
                "the axis pool_size has no pooler to size at the server of --dsn",
                detail="pgdyno starts poolers in front of its own servers only",
                hint="leave out --dsn, or give each size a pooler of your own: `pgdyno compare --endpoint small=CONNINFO --endpoint large=CONNINFO`",
            )
        if any(axis.startswith(_ENDPOINT_AXIS) for axis in axes):
            raise SpecError(
                "the axes endpoint and pool_size exclude each other",
                hint="each size is an endpoint: sweep one, then the other",
            )
        if size is not None:
            raise SpecError("--pool-size and the axis pool_size exclude each other", hint="leave one out")
        if endpoint is not None:
            raise SpecError(
                f"--endpoint {endpoint} and the axis pool_size exclude each other",
                detail="each size is an endpoint: a PgBouncer that pgdyno starts in front of the primary",
                hint="leave one out",
            )
        return written, None, {pool: given(mode=mode, size=count) for pool, count in sizes.items()}, []
    names, poolers, replicas = read_endpoints(varied, dsn=dsn, mode=mode, size=size)
    return written, None if endpoint is None else names[0], poolers, replicas


def _read_names(levels: str, *, dsn: str | None) -> list[str]:
    names = levels.split(",")
    hint = "`pgdyno compare --endpoint primary --endpoint {}=CONNINFO` compares what runs already"
    if "=" in levels:
        raise SpecError("the axis endpoint takes names, and no connection strings", hint=hint.format(_REPLICAS))
    away = next((name for name in names if name != _PRIMARY), None)
    if dsn is not None and away is not None:
        raise SpecError(
            f"{_ENDPOINT_AXIS}{levels}: nothing says how to reach {away}",
            detail="poolers and replicas of the server of --dsn run already, and are found by connection strings",
            hint=hint.format(away),
        )
    return names


def _read_size(axis: str, level: str) -> int:
    from pgdyno.spec.pooler import MOST_SIZE  # noqa: PLC0415 - --help needs no types

    if not level.isdecimal() or not 1 <= int(level) <= MOST_SIZE:
        raise SpecError(f"{axis}: {level} is not a whole number from 1 to {MOST_SIZE}", hint=_EXAMPLE_SIZES)
    return int(level)
