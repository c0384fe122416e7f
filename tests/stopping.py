"""A program that stops itself at a place of its own, and waits there for what a test does.

A test that looks at a running program and then acts on it may be halted in between, on a busy machine for seconds, and acts
too late. A program that has stopped itself is still where it was found. See `Program.stands_still` of `tests/ready_program.py`.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_PLACE, _SIGN = "TESTS_STOP_AT", "TESTS_STOP_WHILE"


def tell_place(method: Callable[..., object], sign: Path) -> dict[str, str]:
    """Return the variables that make a program stop itself.

    Args:
        method: The program stops each time that this method has been called.
        sign: A file; once it is removed, the program does not stop any more.
    """
    return {_PLACE: f"{method.__module__}:{method.__qualname__}", _SIGN: str(sign)}


def stop_where_told() -> None:
    """Let this process, and no child, stop itself where its environment says, if it does."""
    place, sign = os.environ.pop(_PLACE, ""), Path(os.environ.pop(_SIGN, ""))
    if not place:
        return
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    method = getattr(owner, name)

    @functools.wraps(method)
    def call(*given: object, **named: object) -> object:
        result = method(*given, **named)
        if sign.exists():
            # Told to the process, it might be for another thread to take, and this one would go on meanwhile.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return result

    setattr(owner, name, call)


if __name__ == "__main__":
    # The folders beside this file are no modules of the program.
    del sys.path[0]
    stop_where_told()
    runpy.run_module("pgdyno", run_name="__main__", alter_sys=True)
