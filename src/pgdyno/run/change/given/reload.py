"""Wait until a session of a given server has read the configuration files anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pgdyno.errors import StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql

_CONFIRM_WITHIN_S = 10.0
_CONFIRM_EVERY_S = 0.001


def await_reload(
    connection: sql.Connection,
    names: Sequence[str],
    before: sql.LoadedSettings,
    is_there: Callable[[sql.LoadedSettings], bool] = lambda _: True,
) -> sql.LoadedSettings:
    """Wait until this session has read the files, and shows what is expected: a reload of somebody else may come before.

    Args:
        connection: The session.
        names: The settings to read.
        before: What the session had before the request.
        is_there: Whether it shows what is expected.

    Raises:
        StepFailedError: It did not read the files, or shows something else.
    """
    deadline_s = monotonic_s() + _CONFIRM_WITHIN_S
    while True:
        loaded = sql.read_loaded(connection, names)
        is_new = loaded.loaded_at != before.loaded_at
        if is_new and is_there(loaded):
            return loaded
        if monotonic_s() > deadline_s:
            break
        time.sleep(_CONFIRM_EVERY_S)
    if not is_new:
        raise StepFailedError(
            f"the server did not reload its settings within {_CONFIRM_WITHIN_S:g} s",
            hint="it is too busy, or has an error in its configuration files: see its log",
        )
    raise StepFailedError(
        "a setting is not in force after a reload",
        detail=", ".join(f"{name}: {value}" for name, value in zip(names, loaded.shown, strict=True)),
        hint="somebody else changes it, too, or the server's log says what is wrong",
    )
