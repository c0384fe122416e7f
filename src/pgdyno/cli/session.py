"""Run a command in a session: with a display, output of its result, and errors as messages and exit codes.

Results go to stdout, everything else to stderr. With `--json`, stdout is one JSON document, even for an error.
"""

# ruff: noqa: PLC0415 - output is imported when a result exists, which keeps --help fast
from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pgdyno.errors import ExitCode, HostError, InterruptedStudyError, PgdynoError, StepFailedError

if TYPE_CHECKING:
    from pgdyno.cli.live import LiveOptions


@contextmanager
def session(*, json: bool, quiet: bool, yes: bool, live: LiveOptions | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield the display and a function that shows a result; turn errors into messages and exit codes."""
    from pgdyno.cli.live import request_page
    from pgdyno.cli.terminal.display import Display
    from pgdyno.cli.terminal.output import Result, show_result
    from pgdyno.run.host.ctrl_c import interrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup ignores SIGHUP, which must stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            # Each ends in the same way as Ctrl-C: everything that was started stops, and what was finished is kept.
            signal.signal(number, interrupt)
    try:
        page = None if live is None else request_page(live)
        with Display(quiet=quiet or json, assume_yes=yes, page=page) as ui:

            def show(result: Result) -> None:
                ui.close()
                show_result(result, as_json=json)

            yield ui, show
    except PgdynoError as error:
        fail(error, json=json)
    except KeyboardInterrupt as stopped:
        fail(_find_pending_error(stopped) or InterruptedStudyError("stopped"), json=json)
    except BrokenPipeError:
        _leave_pipes()
        raise SystemExit(ExitCode.STEP) from None
    except OSError as error:
        # The last resort: no permission for a file or folder, or a full disk.
        fail(HostError(f"the machine refuses: {error.strerror or error}", detail=str(error)), json=json)
    except Exception as error:  # noqa: BLE001 - the user gets a message and an exit code, we get the location
        fail(_describe_bug(error), json=json)


def _find_pending_error(stopped: KeyboardInterrupt) -> PgdynoError | None:
    """Find the error that was being handled when Ctrl-C was pressed again: how to continue, or what failed."""
    earlier = stopped.__context__
    while earlier is not None and not isinstance(earlier, PgdynoError):
        earlier = earlier.__context__
    return earlier


def _describe_bug(error: Exception) -> StepFailedError:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "pgdyno" in frame.filename]
    places = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in ours)
    return StepFailedError(
        f"pgdyno has a bug: {type(error).__name__}: {error}",
        detail=places,
        hint="please report these lines; what was finished is kept, and `pgdyno resume` continues",
    )


def fail(error: PgdynoError, *, json: bool) -> NoReturn:
    """Print an error and exit with its exit code."""
    from pgdyno.cli.terminal.output import show_error

    try:
        show_error(error, as_json=json)
    except BrokenPipeError:
        _leave_pipes()
    raise SystemExit(error.exit_code)


def _leave_pipes() -> None:
    """Write nothing more: the reader has gone, and Python would report that at exit, with a code of its own.

    With 2>&1 both streams are one pipe.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
