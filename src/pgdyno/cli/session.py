"""What every command runs in: a display, one way to show its result, and errors as words and exit codes.

Results go to stdout, everything else to stderr; `--json` makes stdout one JSON document, of an error too.
"""

# ruff: noqa: PLC0415 - what shows a result is imported when there is one, which keeps --help quick
from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pgdyno.errors import ExitCode, HostError, InterruptedStudyError, PgdynoError, StepFailedError


@contextmanager
def session(*, json: bool, quiet: bool, yes: bool) -> Iterator[tuple[Any, Any]]:
    """The display and the function that shows a result; errors become their words and their exit code."""
    from pgdyno.cli.display import Display
    from pgdyno.cli.output import Result, show_result

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup has it ignored, and means it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        with Display(quiet=quiet or json, assume_yes=yes) as ui:

            def show(result: Result) -> None:
                ui.close()
                show_result(result, as_json=json)

            yield ui, show
    except PgdynoError as error:
        fail(error, json=json)
    except KeyboardInterrupt as interrupt:
        fail(_find_told(interrupt) or InterruptedStudyError("stopped"), json=json)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(ExitCode.STEP) from None
    except OSError as error:
        # The last net: a file or folder that this account may not read or write, or a full disk.
        fail(HostError(f"the machine refuses: {error.strerror or error}", detail=str(error)), json=json)
    except Exception as error:  # noqa: BLE001 - a user gets words and an exit code, and we get the place
        fail(_describe_bug(error), json=json)


def _find_told(interrupt: KeyboardInterrupt) -> PgdynoError | None:
    """What was about to be told when somebody pressed Ctrl-C once more: how to go on, or what has failed."""
    earlier = interrupt.__context__
    while earlier is not None and not isinstance(earlier, PgdynoError):
        earlier = earlier.__context__
    return earlier


def _describe_bug(error: Exception) -> StepFailedError:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "pgdyno" in frame.filename]
    places = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in ours)
    return StepFailedError(
        f"pgdyno has a bug: {type(error).__name__}: {error}",
        detail=places,
        hint="please report these lines; what was finished is kept, and `pgdyno resume` goes on",
    )


def _interrupt(number: int, _frame: object) -> None:
    # The same way out as Ctrl-C: everything started is ended, what was finished is kept.
    raise KeyboardInterrupt(signal.Signals(number).name)


def fail(error: PgdynoError, *, json: bool) -> NoReturn:
    """Tell an error and end with its exit code."""
    from pgdyno.cli.output import show_error

    show_error(error, as_json=json)
    raise SystemExit(error.exit_code)
