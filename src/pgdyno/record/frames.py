"""Import polars, which takes 0.1 s, without the Ctrl-C handler that it installs.

Under that handler one Ctrl-C raises KeyboardInterrupt twice, first from polars and then from Python. The second can hit
the exit of a `with` block before its first line, so that its cleanup is skipped. The handler also makes the kernel
restart interrupted system calls, so that Ctrl-C has no effect until a child process ends. All of pgdyno imports polars
from this module.

Source: issues 23988 and 21739 of pola-rs/polars.
"""

import signal
import threading

_before = signal.getsignal(signal.SIGINT)

import polars as pl  # noqa: E402

# A handler of None was set by C code and cannot be restored. Python sets handlers only in the main thread.
if _before is not None and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _before)

DAMAGE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What decoders raise on files that pgdyno did not write. A damaged page can make polars panic, which is not an Exception."""

__all__ = ["DAMAGE", "pl"]
