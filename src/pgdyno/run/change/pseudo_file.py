"""Write one value to a kernel setting that is a file, below /proc/sys or /sys."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pgdyno.errors import RefusedValueError, SpecError


def write_value(path: Path, value: str, *, name: str) -> None:
    """Write a value; messages call the setting by this name.

    Raises:
        SpecError: The kernel refuses the value.
        RefusedValueError: The value cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            # One write for the whole value: the kernel parses each write on its own.
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as exc:
        if exc.errno in {errno.EINVAL, errno.ERANGE}:
            raise SpecError(f"the kernel refuses {name} = {value}", detail=str(exc)) from exc
        raise RefusedValueError(f"cannot set {name} to {value}", detail=str(exc)) from exc
