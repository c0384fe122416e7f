"""Delay reads, flushes and synchronous writes of emulated disks by a library that is preloaded into a study's programs.

The kernel of an ordinary machine delays no disk: device-mapper and its like need modules that cloud kernels leave out. The
library is compiled when it is used, because a wheel for every architecture would have to hold a binary.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.host import process

_SOURCE = Path(__file__).with_name("latency.c")
_LIBRARY = "latency.so"
_PRELOAD = "LD_PRELOAD"
_INSTALL = "install a C compiler: `apt-get install gcc libc6-dev`"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The least time that a call which waits for a device takes."""

    device_id: int
    """The device's number, as in `st_dev`."""
    flush_s: float
    """Of a flush, and of a write that returns when it is on the disk."""
    read_s: float


def find_compiler() -> str:
    """Return the path of this machine's C compiler.

    Raises:
        HostError: There is none.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise HostError(
            "a C compiler is missing, with which an emulation builds what delays flushes and reads", hint=_INSTALL
        )
    return compiler


def check_place(folder: Path) -> None:
    """Make sure that a library below a folder can be preloaded.

    Raises:
        HostError: Its path has a blank or a colon, which end a name in LD_PRELOAD; programs would run without delays.
    """
    # Source: ld.so(8), LD_PRELOAD: there is no way to escape either.
    if any(letter in str(folder) for letter in " :"):
        raise HostError(
            "an emulation cannot be in a folder whose path has a blank or a colon",
            detail=str(folder),
            hint="name another with --home",
        )


@contextlib.contextmanager
def delayed(latencies: Sequence[Latency], folder: Path) -> Iterator[None]:
    """Preload the library into every program that is started within the block.

    Args:
        latencies: Of each emulated device.
        folder: An existing folder that every account may read, for the library.

    Raises:
        HostError: There is no compiler, or it fails.
    """
    library = _compile(latencies, folder)
    before = os.environ.get(_PRELOAD)
    os.environ[_PRELOAD] = " ".join(filter(None, (str(library), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PRELOAD]
        else:
            os.environ[_PRELOAD] = before
        library.unlink(missing_ok=True)


def _compile(latencies: Sequence[Latency], folder: Path) -> Path:
    library = folder / _LIBRARY
    rows = ",".join(f"{{{one.device_id}u,{one.flush_s * 1e9:.0f},{one.read_s * 1e9:.0f}}}" for one in latencies)
    argv = [find_compiler(), "-O2", "-shared", "-fPIC", f"-DDEVICES={rows}", "-o", str(library), str(_SOURCE), "-ldl"]
    done = process.run(argv)
    if done.exit_code != 0:
        said = done.stderr.strip()
        raise HostError(
            "the library that delays flushes and reads cannot be compiled", detail=said[-500:], hint=_INSTALL
        )
    library.chmod(0o755)
    return library
