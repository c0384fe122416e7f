"""`pgdyno`, and `python -m pgdyno`."""

from __future__ import annotations

import gc
import signal

# Of the time until a command begins its work, a sixth went into looking for garbage among what was just imported.
_GARBAGE_THRESHOLD = 100_000


def main() -> None:
    """Run the command line. Ctrl-C ends at once, without a word, until a command has begun something that is to be ended."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_GARBAGE_THRESHOLD)
    from pgdyno.cli.main import run_program  # noqa: PLC0415 - it takes a moment in which somebody may think better of it

    run_program()


if __name__ == "__main__":
    main()
