"""Start the command line, as `pgdyno` or `python -m pgdyno`."""

from __future__ import annotations

import gc
import io
import signal
import sys

# Garbage collection of imported modules took a sixth of the time until a command begins its work.
_GARBAGE_THRESHOLD = 100_000


def main() -> None:
    """Run the command line. Until a command starts its work, Ctrl-C ends the program at once and silently."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        # Other encodings than UTF-8 lack characters of the reports, and file names may hold bytes that UTF-8 lacks.
        # Python itself passes such bytes on where the locale is C, as files made by redirection want them.
        if isinstance(stream, io.TextIOWrapper) and (stream.encoding, stream.errors) != ("utf-8", "surrogateescape"):
            stream.reconfigure(errors="replace")
    gc.set_threshold(_GARBAGE_THRESHOLD)
    from pgdyno.cli.main import run_program  # noqa: PLC0415 - importing takes a moment in which Ctrl-C must work

    run_program()


if __name__ == "__main__":
    main()
