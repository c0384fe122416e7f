"""Decode the samplers' lines to rows of typed columns.

A line may leave out what has not changed, so that each row needs the lines before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.frames import DAMAGE, pl

FORMAT_VERSION = 1
Line = dict[str, Any]
Row = dict[str, Any]


class OsHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of the OS sampler's file; `wall_s` and `monotonic_s` are the same instant on both clocks."""

    wall_s: float
    monotonic_s: float
    interval_s: float
    clk_tck: int
    page_bytes: int
    fields: dict[str, tuple[str, ...]]
    absent: dict[str, str]
    cpus: tuple[int, ...] = ()
    """CPUs that the study may use under its affinity mask and control group; empty in files of older samplers."""


class ServerHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of the server sampler's file; `wall_s` and `monotonic_s` are the same instant on both clocks."""

    wall_s: float
    monotonic_s: float
    interval_s: float
    looks: int
    version_num: int
    block_bytes: int
    backend_pid: int
    settings: dict[str, bool]
    watched_database: str
    counters: tuple[str, ...]
    io: tuple[str, ...]
    waits: tuple[str, ...]
    standbys: tuple[str, ...] = ()
    """What was sampled of each standby; empty where there are none, and in files of older samplers."""
    refused: dict[str, str] = {}
    """What the server did not show to the sampler's role, with its words, by the source of the trial's gap."""


Header = TypeVar("Header", OsHeader, ServerHeader)


def read_header(raw: Line | msgspec.Raw | None, kind: type[Header]) -> Header | None:
    """Read the first line of a samples file; None if there is none.

    Raises:
        HostError: A newer pgdyno wrote it.
    """
    fields = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    if fields is None:
        return None
    if fields.get("format", FORMAT_VERSION) > FORMAT_VERSION:
        raise HostError(
            "the samples were written by a newer pgdyno",
            detail=f"format {fields['format']}, known up to {FORMAT_VERSION}",
            hint="read them with that version or a later one",
        )
    return msgspec.convert(fields, kind)


class OsRows:
    """Decodes the OS sampler's lines in their order, with unchanged sources filled in.

    A source that is null has no columns until it returns.
    """

    zero = ()

    def __init__(self, header: OsHeader) -> None:
        self._header = header
        self._names: dict[str, tuple[str, ...]] = {}
        self._row: Row = {}

    def decode(self, line: Line) -> Row:
        """Return the row of the next line."""
        row = {**self._row, "t_s": line.pop("t"), "cost_s": line.pop("cost_s")}
        for key, values in line.items():
            if key not in self._names:
                kind = key.partition(".")[0]
                fields = self._header.fields["cpu" if kind[3:].isdigit() else kind]
                self._names[key] = tuple(f"{key}/{field}" for field in fields)
            row.update(zip(self._names[key], values or [None] * len(self._names[key]), strict=False))
        self._row = row
        return row


class ServerRows:
    """Decodes the server sampler's lines in their order, with unchanged lines of pg_stat_io filled in."""

    zero = ("wait/", "look/")
    """Begins the names of columns that are 0 where a row has none."""

    def __init__(self, header: ServerHeader) -> None:
        self._header = header
        self._dimensions = len(header.io) - sum(name.startswith("io_") for name in header.io)
        self._io: Row = {}

    def decode(self, line: Line) -> Row:
        """Return the row of the next line."""
        header, dimensions = self._header, self._dimensions
        row = {"t_s": line["t"], "until_s": line["until"], "cost_s": line["cost_s"], "n": line["n"]}
        row.update(zip((f"counter/{name}" for name in header.counters), line["c"], strict=False))
        for values in line["io"]:
            prefix = "/".join(["io", *values[:dimensions]])
            named = zip(header.io[dimensions:], values[dimensions:], strict=True)
            self._io.update({f"{prefix}/{name}": value for name, value in named if value is not None})
        row.update(self._io)
        for name, *values in line.get("standbys", ()):
            row.update(
                {f"standby/{name}/{what}": value for what, value in zip(header.standbys[1:], values, strict=True)}
            )
        for *key, count in line.get("look", ()):
            row["/".join(["look", *(part or "" for part in key)])] = count
        for *key, count in line["waits"]:
            row["/".join(["wait", *(part or "" for part in key)])] = count
        return row


def make_frame(rows: Sequence[Row], *, zero: tuple[str, ...] = ()) -> pl.DataFrame:
    """Build a frame with a column for each name in any row; gaps are null, or 0 for names that begin with one of `zero`."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        default = 0 if name.startswith(zero) else None
        values = [row.get(name, default) for row in rows]
        kinds = {type(value) for value in values}
        # Only what a standby is to the server is text.
        is_text = str in kinds and name.startswith("standby/")
        dtype = pl.String if is_text else pl.Float64 if float in kinds else pl.Int64
        columns.append(pl.Series(name, values, dtype=dtype))
    return pl.DataFrame(columns)


@contextlib.contextmanager
def translate_damage(path: Path) -> Iterator[None]:
    """Raise StepFailedError for what decoders raise in the block on a file that is damaged."""
    try:
        yield
    except DAMAGE as exc:
        detail = f"{path}: {type(exc).__name__}: {exc}"
        raise StepFailedError("a samples file is damaged", detail=detail) from exc
