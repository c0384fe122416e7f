"""Read the samplers' files: JSON lines while a trial runs, Parquet afterwards, with the same typed columns.

A frame has one row for each sample and one column for each value. Columns are named `source/field`; values are raw and
cumulative as the kernel or PostgreSQL reported them, and null where absent. `os_series.py` and `server_series.py`
compute rates from them. Damage is not repaired: only a last line that a crash cut short is tolerated, and it is
reported. Any other damage is a StepFailedError.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.frames import pl

FORMAT_VERSION = 1
OS_FILE = "os.jsonl"
GENERATOR_FILE = "generator.jsonl"
"""The OS sampler's file of the machine that the load came from, beside a server of the user's."""
SERVER_FILE = "server.jsonl"
MISSED_AFTER_INTERVALS = 1.5
"""Distance of two samples in intervals above which at least one sample was missed."""
_METADATA_KEY = "pgdyno"
_OS_COLUMNS = frozenset({"t_s", "cost_s"})
_SERVER_COLUMNS = frozenset({"t_s", "until_s", "cost_s", "n"})
# What decoders raise on files that neither a sampler nor `pack_samples` wrote. A damaged page can make polars panic,
# which is not an Exception.
_DAMAGE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


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


_Header = TypeVar("_Header", OsHeader, ServerHeader)


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """A gap between two samples in which at least one sample was missed, on CLOCK_MONOTONIC."""

    from_s: float
    to_s: float


class OsSamples(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The OS sampler's samples.

    `frame` has `t_s` (CLOCK_MONOTONIC), `cost_s` and, for each source and field of `header.fields`, columns such as
    `cpu0/user`, `disk.vda/reads`, `process.load/utime`, `thread.load.4711/run_ns`.
    """

    header: OsHeader | None
    """None if the sampler ended before it wrote its first line."""
    frame: pl.DataFrame
    end: str | None
    """Reason that the sampler gave for ending; None if it gave none."""
    torn: str
    """The line that a crash cut short, or empty."""
    given_up: dict[str, str] = {}
    """Requests that the sampler gave up, with the reason; not in the packed form, as the trial's gaps have them."""


class ServerSamples(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The server sampler's samples.

    `frame` has `t_s` and `until_s` (CLOCK_MONOTONIC before and after the counters were read), `cost_s`, `n` (samples of
    the wait events since the row before), `counter/NAME`, `io/BACKEND_TYPE/OBJECT/CONTEXT/NAME` and
    `wait/BACKEND_TYPE/STATE/WAIT_EVENT_TYPE/WAIT_EVENT` with the number of backends seen in those samples. With standbys
    it also has `standby/NAME/VALUE`, and `look/STATE/WAIT_EVENT_TYPE/WAIT_EVENT` with the clients' backends at the moment
    of the row. A dimension that is NULL in PostgreSQL is an empty string.
    """

    header: ServerHeader | None
    """None if the sampler ended before it wrote its first line."""
    frame: pl.DataFrame
    end: str | None
    """Reason that the sampler gave for ending; None if it gave none."""
    torn: str
    """The line that a crash cut short, or empty."""


class _Packed(msgspec.Struct, frozen=True, kw_only=True):
    """All of a samples file except its frame, stored in the metadata of the Parquet file."""

    header: msgspec.Raw
    end: str | None
    torn: str


def read_os_samples(path: Path, *, name: str = OS_FILE) -> OsSamples:
    """Read the OS samples at `path`: a file of JSON lines, its packed form, or the folder of the file `name`.

    Raises:
        StepFailedError: There is no such file, or it is damaged.
        HostError: A newer pgdyno wrote it.
    """
    found = _locate(path, name)
    with _translate_damage(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _OS_COLUMNS)
            return OsSamples(header=_header(packed.header, OsHeader), frame=frame, end=packed.end, torn=packed.torn)
        lines, last, torn = _read_lines(found)
        header = _header(next(lines, None), OsHeader)
        frame = _frame(_os_rows(lines, header)) if header else pl.DataFrame()
        given_up = last.get("given_up", {})
        return OsSamples(header=header, frame=frame, end=last.get("end"), torn=torn, given_up=given_up)


def read_server_samples(path: Path) -> ServerSamples:
    """Read the server samples at `path`: `server.jsonl`, its packed form, or the folder of either.

    Raises:
        StepFailedError: There is no such file, or it is damaged.
        HostError: A newer pgdyno wrote it.
    """
    found = _locate(path, SERVER_FILE)
    with _translate_damage(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _SERVER_COLUMNS)
            header = _header(packed.header, ServerHeader)
            return ServerSamples(header=header, frame=frame, end=packed.end, torn=packed.torn)
        lines, last, torn = _read_lines(found)
        header = _header(next(lines, None), ServerHeader)
        frame = _frame(_server_rows(lines, header), zero=("wait/", "look/")) if header else pl.DataFrame()
        return ServerSamples(header=header, frame=frame, end=last.get("end"), torn=torn)


def find_missed(samples: OsSamples | ServerSamples) -> tuple[Missed, ...]:
    """Find the gaps in which the sampler missed at least one sample."""
    if samples.header is None or samples.frame.height < 2:
        return ()
    limit_s = MISSED_AFTER_INTERVALS * samples.header.interval_s
    times = samples.frame["t_s"].to_list()
    return tuple(Missed(from_s=a, to_s=b) for a, b in itertools.pairwise(times) if b - a > limit_s)


def pack_samples(folder: Path) -> tuple[Path, ...]:
    """Convert the JSON lines in `folder` to Parquet, and remove them once the Parquet file reads back identically.

    Returns:
        The Parquet files written. Files that are already packed are left alone.

    Raises:
        StepFailedError: The files are damaged, cannot be written, or read back differently; the JSON lines are kept.
    """
    written = []
    readers: dict[str, Callable[[Path], OsSamples | ServerSamples]] = {
        OS_FILE: read_os_samples,
        GENERATOR_FILE: read_os_samples,
        SERVER_FILE: read_server_samples,
    }
    for name, read in readers.items():
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
            # On a full disk a leftover partial file would take space that other files need.
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
def _translate_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as exc:
        detail = f"{path}: {type(exc).__name__}: {exc}"
        raise StepFailedError("a samples file is damaged", detail=detail) from exc


def _read_lines(path: Path) -> tuple[Iterator[dict[str, Any]], dict[str, Any], str]:
    """Return the decoded lines without the closing one, the closing one or an empty one, and a torn last line."""
    *complete, last = path.read_bytes().split(b"\n")
    decoded = [msgspec.json.decode(line) for line in complete]
    closing = decoded.pop() if decoded and "end" in decoded[-1] else {}
    return iter(decoded), closing, last.decode(errors="replace")


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
    """Yield rows with unchanged sources filled in; a source that is null has no columns until it returns."""
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
    """Yield rows with unchanged lines of pg_stat_io filled in."""
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
        for name, *values in line.get("standbys", ()):
            row.update(
                {f"standby/{name}/{what}": value for what, value in zip(header.standbys[1:], values, strict=True)}
            )
        for *key, count in line.get("look", ()):
            row["/".join(["look", *(part or "" for part in key)])] = count
        for *key, count in line["waits"]:
            row["/".join(["wait", *(part or "" for part in key)])] = count
        yield row


def _frame(rows: Iterable[dict[str, Any]], zero: tuple[str, ...] = ()) -> pl.DataFrame:
    """Build a frame with a column for each name in any row; gaps are null, or 0 for names that begin with one of `zero`."""
    kept = list(rows)
    names = list(dict.fromkeys(name for row in kept for name in row))
    columns = []
    for name in names:
        default = 0 if name.startswith(zero) else None
        values = [row.get(name, default) for row in kept]
        kinds = {type(value) for value in values}
        # Only what a standby is to the server is text.
        is_text = str in kinds and name.startswith("standby/")
        dtype = pl.String if is_text else pl.Float64 if float in kinds else pl.Int64
        columns.append(pl.Series(name, values, dtype=dtype))
    return pl.DataFrame(columns)


def _pack(samples: OsSamples | ServerSamples, path: Path) -> None:
    rest = {"header": samples.header, "end": samples.end, "torn": samples.torn}
    metadata = {_METADATA_KEY: msgspec.json.encode(rest).decode()}
    # In memory first: polars 2.1 raises no error when the disk is full before the end of a file.
    content = io.BytesIO()
    # Statistics serve queries over many files and would be most of this file.
    samples.frame.write_parquet(content, compression="zstd", statistics=False, metadata=metadata)
    path.write_bytes(content.getbuffer())


def _unpack(path: Path, needed: frozenset[str] = frozenset()) -> tuple[_Packed, pl.DataFrame]:
    metadata = pl.read_parquet_metadata(path)[_METADATA_KEY]
    # For a path, polars takes half as long again as for bytes.
    frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
    # A sampler that wrote no samples leaves a frame without columns.
    if frame.width and (lost := needed.difference(frame.columns)):
        raise KeyError(*lost)
    return msgspec.json.decode(metadata, type=_Packed), frame


def _replace(source: Path, target: Path) -> None:
    """Replace `target` with `source` durably."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
