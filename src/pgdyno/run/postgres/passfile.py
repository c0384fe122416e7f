"""Hand a password on to children in a file in memory, which only this process and the children that it starts can open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pgdyno.errors import SpecError


@contextlib.contextmanager
def open_passfile(password: str) -> Iterator[int]:
    """Make a password file of libpq in memory, and yield its descriptor, for the length of a `with` block.

    Raises:
        SpecError: The password does not fit into a line.
    """
    content = format_passfile(password)
    descriptor = os.memfd_create("pgdyno", os.MFD_CLOEXEC)
    try:
        # libpq refuses a file that others may read.
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        yield descriptor
    finally:
        os.close(descriptor)


def name_passfile(descriptor: int) -> str:
    """Return the path of a password file for libpq's `passfile`, in this process and in children that inherit it."""
    return f"/proc/self/fd/{descriptor}"


def format_passfile(password: str) -> bytes:
    """Return the line of a password file for every server. Source: libpq's documentation, The Password File.

    Raises:
        SpecError: The password does not fit into a line.
    """
    if "\n" in password or password.endswith("\r"):
        raise SpecError("a password with a line end cannot be handed to pgbench", hint="give the role another one")
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    return f"*:*:*:*:{escaped}\n".encode()
