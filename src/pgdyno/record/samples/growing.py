"""Follow files that grow while a trial runs: each reading takes only what is new, and keeps a bounded number of rows.

What a reader of an hour's trial takes, in CPU time and memory, is therefore that of a trial of some minutes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic

import msgspec

from pgdyno.record.frames import pl
from pgdyno.record.samples.rows import Header, OsRows, ServerRows, make_frame, read_header, translate_damage

MOST_ROWS = 480
"""Twice what a chart of the live page shows."""


class GrowingLines:
    """Reads the lines that were added to a file since the last time.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode: int | None = None
        self._offset = 0

    def read(self) -> tuple[bool, list[bytes]]:
        """Return whether the file is another one than the last time, and its new lines; one without its end comes later.

        Raises:
            OSError: The file cannot be read.
        """
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            is_other = status.st_ino != self._inode or status.st_size < self._offset
            if is_other:
                self._inode, self._offset = status.st_ino, 0
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        return is_other, whole.split(b"\n") if end else []


class GrowingSamples(Generic[Header]):
    """Reads a sampler's file while it grows.

    Counters are cumulative and waits are counted in each row, so that every other row of a long file can go: what is
    left shows the same rates over longer intervals.

    Args:
        path: A file of JSON lines, which need not exist yet.
        kind: The type of its first line.
        decoder: The type that decodes the other lines.
    """

    def __init__(self, path: Path, kind: type[Header], decoder: type[OsRows | ServerRows]) -> None:
        self._lines = GrowingLines(path)
        self._kind: type[Header] = kind
        self._decoder = decoder
        self._forget()

    def _forget(self) -> None:
        self._header: Header | None = None
        self._rows: OsRows | ServerRows | None = None
        self._frame = pl.DataFrame()
        self._count, self._step = 0, 1

    def read(self) -> tuple[Header, pl.DataFrame] | None:
        """Return the header, with the interval of the rows that are left, and the frame; None before the first line.

        A file that is gone has been packed: what was read of it stays.

        Raises:
            HostError, StepFailedError: As for `read_os_samples`.
        """
        try:
            is_other, lines = self._lines.read()
        except OSError:
            is_other, lines = False, []
        if is_other:
            self._forget()
        with translate_damage(self._lines.path):
            self._take(lines)
        if self._header is None:
            return None
        return msgspec.structs.replace(self._header, interval_s=self._header.interval_s * self._step), self._frame

    def _take(self, lines: list[bytes]) -> None:
        rows = []
        for line in map(msgspec.json.decode, lines):
            if self._rows is None:
                self._header = read_header(line, self._kind)
                self._rows = self._decoder(self._header)  # type: ignore[arg-type]
            elif "end" not in line:
                row = self._rows.decode(line)
                if self._count % self._step == 0:
                    rows.append(row)
                self._count += 1
        if not rows:
            return
        zero = self._decoder.zero
        frame = pl.concat([self._frame, make_frame(rows, zero=zero)], how="diagonal_relaxed", rechunk=True)
        frame = frame.with_columns(pl.col(name).fill_null(0) for name in frame.columns if name.startswith(zero))
        while frame.height > MOST_ROWS:
            frame, self._step = frame.gather_every(2), self._step * 2
        self._frame = frame
