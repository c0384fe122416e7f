"""Kernel settings for tests: those of a network of our own where they will do, so that this machine is not touched."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pgdyno.run.change.sysctl import find_namespace, read_value, resolve_sysctl
from pgdyno.run.host.process import find_server_user

_CLONE_NEWNET = 0x40000000
_LOCKS = Path("/var/tmp/pgdyno-test-sysctls")
_ALL = "all"
_held: set[str] = set()
"""What this process has for itself now."""

SETTING = "net.core.somaxconn"
OTHER = "net.ipv4.tcp_keepalive_time"
VECTOR = "net.ipv4.ip_local_port_range"
BACKGROUND = ("vm.dirty_background_ratio", "vm.dirty_background_bytes")

needs_proc_sys = pytest.mark.skipif(
    not os.access("/proc/sys/vm/swappiness", os.W_OK, effective_ids=True), reason="/proc/sys is not writable here"
)


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """A network namespace of its own for this thread and the children it starts: its settings are nobody else's."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if libc.unshare(_CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace of its own: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            assert libc.setns(before.fileno(), _CLONE_NEWNET) == 0


@contextlib.contextmanager
def machine_settings(*names: str, alone: bool = False) -> Iterator[None]:
    """Settings of the whole machine, as before whatever the test did; each of them one test at a time.

    Args:
        names: What the test changes.
        alone: It may change others, too: no other test changes any meanwhile.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(_ALL, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        # In one order for all, so that no two wait for each other.
        for name in sorted(names):
            stack.enter_context(_locked(name, fcntl.LOCK_EX))
        before = {name: read_sysctl(name) for name in names}
        try:
            yield
        finally:
            for name, value in before.items():
                if read_sysctl(name) != value and not (value == "0" and name.endswith("_bytes")):
                    write(name, value)
            assert {name: read_sysctl(name) for name in names} == before


def one_at_a_time(what: str) -> contextlib.AbstractContextManager[None]:
    """Something else that the whole machine shares: one test at a time changes it, also of other runs."""
    return _locked(what, fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    _LOCKS.mkdir(exist_ok=True)
    # Tests of another account share the machine's settings and these locks, which it need only read.
    with contextlib.suppress(PermissionError):
        _LOCKS.chmod(0o777)
    lock = os.open(_LOCKS / name, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, how)
        if how == fcntl.LOCK_EX:
            _held.add(name)
        yield
    finally:
        _held.discard(name)
        os.close(lock)


def read_sysctl(name: str) -> str:
    """As pgdyno reads it; one of the whole machine only while no other test may change it."""
    canonical = resolve_sysctl(name)
    assert find_namespace(canonical) or _held & {_ALL, canonical}, f"{name} is read outside of machine_settings"
    return read_value(canonical)


def write(name: str, value: str) -> None:
    """As somebody else would."""
    Path("/proc/sys", name.replace(".", "/")).write_text(value)


@contextlib.contextmanager
def started_child(
    code: str, *, journal: Path, as_user: bool = False, imports: str = "", prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Start a program with what it needs imported; with `as_user` it is an ordinary account also where this one is root."""
    lines = ["import ctypes, os, pathlib, sys, time", "from pgdyno.run.change.kernel import *"]
    modules = ("run.change.journal", "run.change.changes", "run.host.ctrl_c", "errors")
    lines += [f"from pgdyno.{module} import *" for module in modules]
    lines += [imports, f"journal = Journal(pathlib.Path({str(journal)!r}))"]
    if as_user and os.geteuid() == 0:
        user = find_server_user()
        # After the imports: that account may not be able to read them.
        lines += [f"os.setgroups([]); os.setresgid(*[{user.gid}] * 3); os.setresuid(*[{user.uid}] * 3)"]
    child = subprocess.Popen(
        [*prefix, sys.executable, "-c", "\n".join([*lines, code])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()
