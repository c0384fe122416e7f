"""Check the place of a file that a command will write at its end, before the work that leads to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pgdyno.errors import HostError, SpecError


def check_target(option: str, path: Path, *, example: str) -> None:
    """Refuse a file that cannot be written.

    Args:
        option: The option that names it.
        path: The file.
        example: A name of one.

    Raises:
        SpecError: It is no file, or there is no such folder.
        HostError: The folder does not allow writing.
    """
    if path.exists() and not path.is_file():
        raise SpecError(f"{option} {path}: not a file", hint=f"for example {option} {example}")
    if not path.parent.is_dir():
        raise SpecError(f"{option} {path}: there is no folder {path.parent}", hint="make it first")
    try:
        # To root, /proc looks as if it could be written.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as exc:
        raise HostError(
            f"{option} {path}: the folder does not allow writing",
            detail=f"{path.parent}: {exc.strerror}",
            hint="name a file in another folder",
        ) from exc
