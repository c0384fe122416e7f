"""Ctrl-C is always heard: also in Python code that compiled code has called, and as a block ends that delays it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each sends Ctrl-C from a function that the library calls, where that would be dropped or become a panic.
SENDING = {
    "numpy looks up what an enum has not": """
import enum
import numpy as np
class Outcome(enum.StrEnum):
    OPEN = "open"
vars(enum).update(send=send, look_up=enum.EnumType.__getattr__)
exec("EnumType.__getattr__ = lambda cls, name: send() or look_up(cls, name)", vars(enum))
def work():
    np.array(["open"]) == Outcome.OPEN
""",
    "polars asks for its own defaults": """
import io
from polars.io.scan_options.cast_options import ScanCastOptions
default = ScanCastOptions._default
def give_default():
    send()
    return default()
ScanCastOptions._default = staticmethod(give_default)
file = io.BytesIO()
pl.DataFrame({"a": [1]}).write_parquet(file)
def work():
    file.seek(0)
    assert pl.read_parquet(file).height == 1
""",
}
PROGRAM = """
import signal, sys, time
from pgdyno.record.frames import pl
from pgdyno.run.host.ctrl_c import interrupt
signal.signal(signal.SIGINT, interrupt)
is_sent = False
def send():
    global is_sent
    if not is_sent:
        is_sent = True
        signal.raise_signal(signal.SIGINT)
{sending}
try:
    work()
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        time.sleep(0.001)
except KeyboardInterrupt as heard:
    print("heard", heard, is_sent)
"""


def run_program(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("where", SENDING)
def test_it_is_heard_once_the_library_is_done(where: str) -> None:
    assert run_program(PROGRAM.format(sending=SENDING[where])) == "heard SIGINT True\n"


def test_a_library_that_goes_on_and_on_is_interrupted() -> None:
    # As a code object: a text that Ctrl-C ends would end the process, too.
    endless = """
endless = compile("send()\\nwhile True: pass", "endless", "exec")
def work():
    exec(endless, {"__name__": "polars", "send": send})
"""
    assert run_program(PROGRAM.replace("{sending}", endless)) == "heard SIGINT True\n"


BLOCK = """
import signal
from pgdyno.run.host.ctrl_c import uninterrupted
told = []
def tell(number, frame):
    told.append(signal.Signals(number).name)
    raise KeyboardInterrupt
numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
for number in numbers:
    signal.signal(number, tell)
put_back = signal.signal
def put_back_and_send(number, handler):
    put_back(number, handler)
    if handler is tell:
        signal.raise_signal(number)
try:
    with uninterrupted():
        signal.signal = put_back_and_send
except KeyboardInterrupt:
    pass
signal.signal = put_back
for number in numbers:
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        pass
print(*told)
"""


def test_one_that_comes_as_handlers_are_put_back_leaves_all_of_them_heard() -> None:
    assert run_program(BLOCK) == "SIGINT SIGINT SIGTERM SIGHUP\n"
