"""`pgdyno`, and `python -m pgdyno`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line. Ctrl-C ends at once, without a word, until a command has begun something that is to be ended."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pgdyno.cli.main import run_program  # noqa: PLC0415 - it takes a moment in which somebody may think better of it

    run_program()


if __name__ == "__main__":
    main()
