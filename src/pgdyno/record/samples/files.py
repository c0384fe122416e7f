"""Read the samplers' files: JSON lines while a trial runs, Parquet afterwards, with the same typed columns.

A frame has one row for each sample and one column for each value. Columns are named `source/field`; values are raw and
cumulative as the kernel or PostgreSQL reported them, and null where absent. `os_series.py` and `server_series.py`
compute rates from them. Damage is not repaired: only a last line that a crash cut short is tolerated, and it is
reported. Any other damage is a StepFailedError.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.record.durable import sync_folder
from pgdyno.record.frames import pl
from pgdyno.record.samples.rows import (
    OsHeader,
    OsRows,
    ServerHeader,
    ServerRows,
    make_frame,
    read_header,
    translate_damage,
)

OS_FILE = "os.jsonl"
GENERATOR_FILE = "generator.jsonl"
"""The OS sampler's file of the machine that the load came from, beside a server of the user's."""
SERVER_FILE = "server.jsonl"
MISSED_AFTER_INTERVALS = 1.5
"""Distance of two samples in intervals above which at least one sample was missed."""
_METADATA_KEY = "pgdyno"
_OS_COLUMNS = frozenset({"t_s", "cost_s"})
_SERVER_COLUMNS = frozenset({"t_s", "until_s", "cost_s", "n"})


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
    with translate_damage(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _OS_COLUMNS)
            return OsSamples(header=read_header(packed.header, OsHeader), frame=frame, end=packed.end, torn=packed.torn)
        lines, last, torn = _read_lines(found)
        header = read_header(next(lines, None), OsHeader)
        frame = make_frame([] if header is None else [*map(OsRows(header).decode, lines)])
        given_up = last.get("given_up", {})
        return OsSamples(header=header, frame=frame, end=last.get("end"), torn=torn, given_up=given_up)


def read_server_samples(path: Path) -> ServerSamples:
    """Read the server samples at `path`: `server.jsonl`, its packed form, or the folder of either.

    Raises:
        StepFailedError: There is no such file, or it is damaged.
        HostError: A newer pgdyno wrote it.
    """
    found = _locate(path, SERVER_FILE)
    with translate_damage(found):
        if found.suffix == ".parquet":
            packed, frame = _unpack(found, _SERVER_COLUMNS)
            header = read_header(packed.header, ServerHeader)
            return ServerSamples(header=header, frame=frame, end=packed.end, torn=packed.torn)
        lines, last, torn = _read_lines(found)
        header = read_header(next(lines, None), ServerHeader)
        rows = [] if header is None else [*map(ServerRows(header).decode, lines)]
        frame = make_frame(rows, zero=ServerRows.zero)
        return ServerSamples(header=header, frame=frame, end=last.get("end"), torn=torn)


def find_missed(samples: OsSamples | ServerSamples) -> tuple[Missed, ...]:
    """Find the gaps in which the sampler missed at least one sample."""
    if samples.header is None or samples.frame.height < 2:
        return ()
    limit_s = MISSED_AFTER_INTERVALS * samples.header.interval_s
    times_s = samples.frame["t_s"].to_list()
    return find_missed_between(times_s, times_s, limit_s=limit_s)


def find_missed_between(begun_s: Sequence[float], ended_s: Sequence[float], *, limit_s: float) -> tuple[Missed, ...]:
    """Find the gaps in which a sample began more than `limit_s` after the one before it had ended; both by time."""
    pairs = zip(ended_s, begun_s[1:], strict=False)
    return tuple(Missed(from_s=a, to_s=b) for a, b in pairs if b - a > limit_s)


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
            sync_folder(draft)
            draft.replace(target)
            sync_folder(target.parent)
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


def _read_lines(path: Path) -> tuple[Iterator[dict[str, Any]], dict[str, Any], str]:
    """Return the decoded lines without the closing one, the closing one or an empty one, and a torn last line."""
    *complete, last = path.read_bytes().split(b"\n")
    decoded = [msgspec.json.decode(line) for line in complete]
    closing = decoded.pop() if decoded and "end" in decoded[-1] else {}
    return iter(decoded), closing, last.decode(errors="replace")


def _pack(samples: OsSamples | ServerSamples, path: Path) -> None:
    rest = {"header": samples.header, "end": samples.end, "torn": samples.torn}
    metadata = {_METADATA_KEY: msgspec.json.encode(rest).decode()}
    # In memory first: polars 2.1 raises no error when the disk is full before the end of a file.
    content = io.BytesIO()
    # Statistics serve queries over many files and would be most of this file.
    samples.frame.write_parquet(content, compression="zstd", statistics=False, metadata=metadata)
    path.write_bytes(content.getvalue())


def _unpack(path: Path, needed: frozenset[str] = frozenset()) -> tuple[_Packed, pl.DataFrame]:
    metadata = pl.read_parquet_metadata(path)[_METADATA_KEY]
    # For a path, polars takes half as long again as for bytes.
    frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
    # A sampler that wrote no samples leaves a frame without columns.
    if frame.width and (lost := needed.difference(frame.columns)):
        raise KeyError(*lost)
    return msgspec.json.decode(metadata, type=_Packed), frame
