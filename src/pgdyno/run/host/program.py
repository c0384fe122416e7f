"""Name this program as the user called it, so that suggested commands work as they are printed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_NAME = "pgdyno"
PROGRAM_VARIABLE = "PGDYNO_PROGRAM"
COMMAND_VARIABLE = "PGDYNO_COMMAND"
# Source: typer, which makes it of the program's name.
_COMPLETION_VARIABLE, _COMPLETION_OPTIONS = "_PGDYNO_COMPLETE", {"--install-completion", "--show-completion"}
MACHINE_VARIABLE = "PGDYNO_MACHINE"
# uvx sets it, and puts the program into the PATH of this one process: the user's shell does not find it there.
_UVX = "UV"


def program_name() -> str:
    """Return the name or path that started pgdyno.

    It is `./pgdyno` for the script in a clone, `pgdyno` for an installed program that PATH leads to, and else the path of
    that program, such as `venv/bin/pgdyno`.
    """
    return os.environ.get(PROGRAM_VARIABLE) or _name_installed(sys.argv[0])


def name_for_shell() -> str | None:
    """Return the name by which a shell completes this program; None if no shell asks for that.

    Without a path: the shell's variable is named after it, and a script does not pass on one with a slash in its name. Shells
    find what completes ./pgdyno by its last part.
    """
    is_asked = _COMPLETION_VARIABLE in os.environ or not _COMPLETION_OPTIONS.isdisjoint(sys.argv[1:2])
    return _NAME if is_asked else None


def typed_command() -> tuple[str, ...]:
    """Return the command as the user typed it, on whichever machine that was."""
    typed = os.environ.get(COMMAND_VARIABLE)
    if typed is None:
        return (program_name(), *sys.argv[1:])
    import json  # noqa: PLC0415 - every command imports this module, and few run on another machine

    return tuple(json.loads(typed))


def machine_name() -> str | None:
    """Return what the user called this machine when starting this program from another one; None if it was started here."""
    return os.environ.get(MACHINE_VARIABLE)


def reached_address() -> str | None:
    """Return the IP address of this machine that ssh led to; None if it did not, or does not say."""
    # Source: ssh(1): the address and port of the client, then those of the server.
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) > 2 else None


def _name_installed(called: str) -> str:
    if "/" not in called or Path(called).name != _NAME:
        return _NAME
    found = shutil.which(_NAME)
    is_found = found is not None and Path(found).exists() and Path(found).samefile(called)
    return _NAME if is_found and not os.environ.get(_UVX) else called
