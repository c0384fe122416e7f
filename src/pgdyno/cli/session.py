"""Run a command in a session: with a display, output of its result, and errors as messages and exit codes.

Results go to stdout, everything else to stderr. With `--json`, stdout is one JSON document, even for an error.
"""

# ruff: noqa: PLC0415 - output is imported when a result exists, which keeps --help fast
from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pgdyno.errors import ExitCode, HostError, InterruptedStudyError, PgdynoError, StepFailedError

if TYPE_CHECKING:
    from pgdyno.cli.live import LiveOptions


@contextlib.contextmanager
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
    except OSError as error:
        fail_refused(error, json=json)
    except Exception as error:  # noqa: BLE001 - the user gets a message and an exit code, we get the location
        fail(_describe_loop(error) or _describe_bug(error), json=json)
    finally:
        _leave_broken_streams()


def _find_pending_error(stopped: KeyboardInterrupt) -> PgdynoError | None:
    """Find the error that was being handled when Ctrl-C was pressed again: how to continue, or what failed."""
    earlier = stopped.__context__
    while earlier is not None and not isinstance(earlier, PgdynoError):
        earlier = earlier.__context__
    return earlier


def _describe_loop(error: Exception) -> HostError | None:
    """Describe a loop of links, at which Path.resolve() raises a RuntimeError before Python 3.13; None if it is another error."""
    is_loop = isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from ")
    return HostError(f"the machine refuses: {os.strerror(errno.ELOOP)}", detail=str(error)) if is_loop else None


def _describe_bug(error: Exception) -> StepFailedError:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "pgdyno" in frame.filename]
    places = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in ours)
    return StepFailedError(
        f"pgdyno has a bug: {type(error).__name__}: {error}",
        detail=places,
        hint="please report these lines; what was finished is kept, and `pgdyno resume` continues",
    )


def fail_refused(error: OSError, *, json: bool, code: ExitCode | None = None) -> NoReturn:
    """Print what the machine refuses: a file or folder without permission, a full disk; a closed pipe needs no words.

    Args:
        error: The refusal.
        json: Whether stdout is one JSON document.
        code: Exit with it; None: with that of the refusal.
    """
    # Where a result could not be written, nothing may follow its first part.
    _leave_broken_streams()
    if isinstance(error, BrokenPipeError):
        raise SystemExit(code or ExitCode.STEP)
    fail(HostError(f"the machine refuses: {error.strerror or error}", detail=str(error)), json=json, code=code)


def fail(error: PgdynoError, *, json: bool, code: ExitCode | None = None) -> NoReturn:
    """Print an error and exit with its exit code, or with another one."""
    from pgdyno.cli.terminal.output import show_error

    with contextlib.suppress(OSError):
        show_error(error, as_json=json)
    _leave_broken_streams()
    raise SystemExit(code or error.exit_code)


def _leave_broken_streams() -> None:
    """Give up streams that cannot be written: Python would report them at exit, with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
