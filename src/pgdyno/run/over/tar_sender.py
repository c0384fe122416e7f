"""Send files to a program on another machine as they are read: a compressed tar in frames, a line with a size and so many bytes each."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pgdyno.run.over.talk import FarTalk

_SPEND_LITTLE_ON_PACKING = 1
_FRAME_BYTES = 1 << 18
# Source: zlib.h, deflateInit2().
_GZIP = 31


class TarSender:
    """Sends tars, and counts what goes through the link."""

    def __init__(self, talk: FarTalk) -> None:
        self._talk = talk
        self._pending = bytearray()
        self._packer = zlib.compressobj()
        self.sent_bytes = 0

    @contextmanager
    def packing(self) -> Iterator[tarfile.TarFile]:
        """Yield the tar to add files to; a frame without bytes ends it.

        Raises:
            StepFailedError: The link is lost.
        """
        # tarfile itself takes a level only from Python 3.12 on.
        self._packer = zlib.compressobj(_SPEND_LITTLE_ON_PACKING, wbits=_GZIP)
        with tarfile.open(fileobj=self, mode="w|") as tar:  # type: ignore[call-overload]
            yield tar
        self._pending += self._packer.flush()
        self._flush()
        self._talk.send(b"0\n")

    def write(self, data: bytes) -> int:
        """Take a part of a tar."""
        self._pending += self._packer.compress(data)
        if len(self._pending) >= _FRAME_BYTES:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        if self._pending:
            self._talk.send(b"%d\n" % len(self._pending) + bytes(self._pending))
            self.sent_bytes += len(self._pending)
            self._pending.clear()
