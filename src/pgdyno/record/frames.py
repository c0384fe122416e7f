"""Loads polars, which takes 0.1 s, without the handler of Ctrl-C that it installs.

Under that handler one Ctrl-C raises KeyboardInterrupt twice, first from polars and then from Python, which can hit the exit
of a `with` block before its first line: what the block was to undo or to tell is left out. It also has the kernel restart
what waits, so that Ctrl-C is not heard until a child ends. All of pgdyno imports polars from here.

Source: issues 23988 and 21739 of pola-rs/polars.
"""

import signal
import threading

_before = signal.getsignal(signal.SIGINT)

import polars as pl  # noqa: E402

# None was set by somebody else's C code, which cannot be put back; elsewhere than in the main thread Python sets none.
if _before is not None and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _before)

__all__ = ["pl"]
