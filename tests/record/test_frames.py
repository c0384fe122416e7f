"""Ctrl-C while polars works, in a process of its own: heard once, where it comes, and at once where something waits."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import contextlib, os, signal, subprocess, threading
from pgdyno.run.host.ctrl_c import interrupt
signal.signal(signal.SIGINT, interrupt)
from pgdyno.record.frames import pl
@contextlib.contextmanager
def telling():
    try:
        yield
    except KeyboardInterrupt as interrupt:
        print("told", interrupt)
def soon():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
frame = pl.select(a=pl.int_range(2_000_000).shuffle(1)).lazy()
for _ in range(5):
    with telling():
        soon()
        while True:
            frame.sort("a").collect()
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child, telling():
    late = threading.Timer(300, child.kill)
    late.start()
    try:
        soon()
        child.wait()
    finally:
        print("waiting" if child.poll() is None else "too late")
        late.cancel()
"""


def test_one_ctrl_c_is_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["told SIGINT"] * 5 + ["waiting", "told SIGINT"]
