"""Reads what the samplers wrote: JSON lines while a trial runs, Parquet afterwards, the same typed columns from both.

A frame has one row for each sample and one column for each value, named `source/field`, raw and cumulative as the
kernel or PostgreSQL gave it; null is what was not there. `series.py` makes rates of them. This module refuses to guess
at damage: only a last line that a crash cut short is tolerated, and it is reported. Whatever else a damaged file makes
its decoders say is a StepFailedError.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.frames import pl

FORMAT_VERSION = 1
OS_FILE = "os.jsonl"
SERVER_FILE = "server.jsonl"
MISSED_AFTER_INTERVALS = 1.5
"""A step between samples of more than this many intervals means that at least one was missed."""
_METADATA_KEY = "pgdyno"
_OS_COLUMNS = frozenset({"t_s", "cost_s"})
_SERVER_COLUMNS = frozenset({"t_s", "until_s", "cost_s", "n"})
# What lines and Parquet files raise that hold something else than a sampler or `pack_samples` wrote. A damaged page can
# make polars panic, which is no Exception.
_DAMAGE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class OsHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the OS sampler. `wall_s` and `monotonic_s` are one instant on both clocks."""

    wall_s: float
    monotonic_s: float
    interval_s: float
    clk_tck: int
    page_bytes: int
    fields: dict[str, tuple[str, ...]]
    absent: dict[str, str]
    cpus: tuple[int, ...] = ()
    """That the study may use, for an affinity mask or a control group narrows them; none: an earlier sampler did not say."""


class ServerHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the server sampler. `wall_s` and `monotonic_s` are one instant on both clocks."""

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


_Header = TypeVar("_Header", OsHeader, ServerHeader)


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that were due between two that were taken, on CLOCK_MONOTONIC."""

    from_s: float
    to_s: float


class OsSamples(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the OS sampler saw.

    `frame` has `t_s` (CLOCK_MONOTONIC), `cost_s` and, for each source and field of `header.fields`, columns such as
    `cpu0/user`, `disk.vda/reads`, `process.load/utime`, `thread.load.4711/run_ns`.
    """

    header: OsHeader | None
    """None when the sampler died before it said anything."""
    frame: pl.DataFrame
    end: str | None
    """Why the sampler said it ended; None when it could not say."""
    torn: str
    """The line that a crash cut short, or empty."""


class ServerSamples(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the server sampler saw.

    `frame` has `t_s` and `until_s` (CLOCK_MONOTONIC before and after the counters were read), `cost_s`, `n` (looks at
    the waits since the row before), `counter/NAME`, `io/BACKEND_TYPE/OBJECT/CONTEXT/NAME` and
    `wait/BACKEND_TYPE/STATE/WAIT_EVENT_TYPE/WAIT_EVENT` with the number of backends seen in those looks; what
    PostgreSQL has as NULL in a dimension is an empty string.
    """

    header: ServerHeader | None
    """None when the sampler died before it said anything."""
    frame: pl.DataFrame
    end: str | None
    """Why the sampler said it ended; None when it could not say."""
    torn: str
    """The line that a crash cut short, or empty."""


class _Packed(msgspec.Struct, frozen=True, kw_only=True):
    """All of a samples file that is not its frame, kept in the metadata of the Parquet file."""

    header: msgspec.Raw
    end: str | None
    torn: str


def read_os_samples(path: Path) -> OsSamples:
    """The OS samples at `path`: `os.jsonl`, its packed form beside it, or the folder of either.

    Raises:
        StepFailedError: There is no such file, or it is damaged.
        HostError: A newer pgdyno wrote it.
    """
    found = _locate(path, OS_FILE)
    with _damage_told(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _OS_COLUMNS)
            return OsSamples(header=_header(packed.header, OsHeader), frame=frame, end=packed.end, torn=packed.torn)
        lines, end, torn = _read_lines(found)
        header = _header(next(lines, None), OsHeader)
        frame = _frame(_os_rows(lines, header)) if header else pl.DataFrame()
        return OsSamples(header=header, frame=frame, end=end, torn=torn)


def read_server_samples(path: Path) -> ServerSamples:
    """The server samples at `path`: `server.jsonl`, its packed form beside it, or the folder of either.

    Raises:
        StepFailedError: There is no such file, or it is damaged.
        HostError: A newer pgdyno wrote it.
    """
    found = _locate(path, SERVER_FILE)
    with _damage_told(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _SERVER_COLUMNS)
            header = _header(packed.header, ServerHeader)
            return ServerSamples(header=header, frame=frame, end=packed.end, torn=packed.torn)
        lines, end, torn = _read_lines(found)
        header = _header(next(lines, None), ServerHeader)
        frame = _frame(_server_rows(lines, header), zero="wait/") if header else pl.DataFrame()
        return ServerSamples(header=header, frame=frame, end=end, torn=torn)


def find_missed(samples: OsSamples | ServerSamples) -> tuple[Missed, ...]:
    """Where the sampler came too late for at least one sample."""
    if samples.header is None or samples.frame.height < 2:
        return ()
    limit_s = MISSED_AFTER_INTERVALS * samples.header.interval_s
    times = samples.frame["t_s"].to_list()
    return tuple(Missed(from_s=a, to_s=b) for a, b in itertools.pairwise(times) if b - a > limit_s)


def pack_samples(folder: Path) -> tuple[Path, ...]:
    """Turn the JSON lines in `folder` into Parquet, and remove them once it is on disk and reads back the same.

    Returns:
        The Parquet files written; files already packed, or never written, are left alone.

    Raises:
        StepFailedError: They are damaged, or cannot be written, or do not read back the same; they are kept.
    """
    written = []
    for name, read in ((OS_FILE, read_os_samples), (SERVER_FILE, read_server_samples)):
        source = folder / name
        target, draft = source.with_suffix(".parquet"), source.with_suffix(".tmp")
        if not source.exists() or target.exists():
            source.unlink(missing_ok=True)
            continue
        samples = read(source)
        try:
            _pack(samples, draft)
            if not _unpack(draft)[1].equals(samples.frame):
                raise StepFailedError("packed samples do not read back the same", detail=str(draft))
            _replace(draft, target)
        except (pl.exceptions.PolarsError, OSError) as exc:
            raise StepFailedError("samples cannot be packed", detail=f"{target}: {exc}") from exc
        finally:
            # On a full disk its rest would take the room that others need.
            draft.unlink(missing_ok=True)
        source.unlink()
        written.append(target)
    return tuple(written)


def _locate(path: Path, name: str) -> Path:
    base = path / name if path.is_dir() else path
    for candidate in (base.with_suffix(".parquet"), base.with_suffix(".jsonl")):
        if candidate.exists():
            return candidate
    raise StepFailedError("there are no samples", detail=str(base), hint="the sampler may never have started")


@contextlib.contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as exc:
        detail = f"{path}: {type(exc).__name__}: {exc}"
        raise StepFailedError("a samples file is damaged", detail=detail) from exc


def _read_lines(path: Path) -> tuple[Iterator[dict[str, Any]], str | None, str]:
    """The decoded lines without the last words, the sampler's reason for ending, and a torn last line."""
    *complete, last = path.read_bytes().split(b"\n")
    decoded = [msgspec.json.decode(line) for line in complete]
    end = decoded.pop()["end"] if decoded and "end" in decoded[-1] else None
    return iter(decoded), end, last.decode(errors="replace")


def _header(raw: dict[str, Any] | msgspec.Raw | None, kind: type[_Header]) -> _Header | None:
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


def _os_rows(lines: Iterable[dict[str, Any]], header: OsHeader) -> Iterator[dict[str, Any]]:
    """Rows with unchanged sources filled in; a source that is null has no columns until it comes back."""
    names: dict[str, tuple[str, ...]] = {}
    row: dict[str, Any] = {}
    for line in lines:
        row = {**row, "t_s": line.pop("t"), "cost_s": line.pop("cost_s")}
        for key, values in line.items():
            if key not in names:
                kind = key.partition(".")[0]
                fields = header.fields["cpu" if kind[3:].isdigit() else kind]
                names[key] = tuple(f"{key}/{field}" for field in fields)
            row.update(zip(names[key], values or [None] * len(names[key]), strict=False))
        yield row


def _server_rows(lines: Iterable[dict[str, Any]], header: ServerHeader) -> Iterator[dict[str, Any]]:
    """Rows with unchanged lines of pg_stat_io filled in."""
    dimensions = len(header.io) - sum(name.startswith("io_") for name in header.io)
    io: dict[str, Any] = {}
    for line in lines:
        row = {"t_s": line["t"], "until_s": line["until"], "cost_s": line["cost_s"], "n": line["n"]}
        row.update(zip((f"counter/{name}" for name in header.counters), line["c"], strict=False))
        for values in line["io"]:
            prefix = "/".join(["io", *values[:dimensions]])
            named = zip(header.io[dimensions:], values[dimensions:], strict=True)
            io.update({f"{prefix}/{name}": value for name, value in named if value is not None})
        row.update(io)
        for *key, count in line["waits"]:
            row["/".join(["wait", *(part or "" for part in key)])] = count
        yield row


def _frame(rows: Iterable[dict[str, Any]], zero: str | None = None) -> pl.DataFrame:
    """A frame with a column for each name that any row has; null, or 0 for names that begin with `zero`, elsewhere."""
    kept = list(rows)
    names = list(dict.fromkeys(name for row in kept for name in row))
    columns = []
    for name in names:
        default = 0 if zero is not None and name.startswith(zero) else None
        values = [row.get(name, default) for row in kept]
        dtype = pl.Float64 if any(isinstance(value, float) for value in values) else pl.Int64
        columns.append(pl.Series(name, values, dtype=dtype))
    return pl.DataFrame(columns)


def _pack(samples: OsSamples | ServerSamples, path: Path) -> None:
    rest = {"header": samples.header, "end": samples.end, "torn": samples.torn}
    metadata = {_METADATA_KEY: msgspec.json.encode(rest).decode()}
    # In memory first: polars 2.1 says nothing when the disk has no room for the end of a file.
    content = io.BytesIO()
    # Statistics serve queries over many files and would be most of this one.
    samples.frame.write_parquet(content, compression="zstd", statistics=False, metadata=metadata)
    path.write_bytes(content.getbuffer())


def _unpack(path: Path, needed: frozenset[str] = frozenset()) -> tuple[_Packed, pl.DataFrame]:
    metadata = pl.read_parquet_metadata(path)[_METADATA_KEY]
    # Polars takes half as long again to look at a path than to read bytes.
    frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
    # A sampler that saw nothing leaves a frame without columns.
    if frame.width and (lost := needed.difference(frame.columns)):
        raise KeyError(*lost)
    return msgspec.json.decode(metadata, type=_Packed), frame


def _replace(source: Path, target: Path) -> None:
    """Put `source` in the place of `target`, durably."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
