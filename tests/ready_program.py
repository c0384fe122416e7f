"""The program, started by a process that has imported it already: each start saves a second of CPU time.

Every test worker has one such process. It imports the program once, and forks for each start a child that is the worker's
own, as `subprocess.Popen` would have started it: with its arguments, folder, environment and standard streams. The child
begins where a new Python does, in the program's `main`.

What a fork would not have as a new Python has it is started as one: see `_Forks.fits`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MESSAGE_BYTES = 1 << 20
# Source: linux/sched.h, sys/mount.h, and the unistd.h of each machine.
_CLONE_PARENT, _CLONE_NEWNS = 0x8000, 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
_WITHOUT_THREADS = {"_RJEM_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
# Of the threads that an import starts, the only one that cannot be turned off. It sleeps, and no child waits for it.
_SLEEPING = {"polars-ooc-clea"}


class Program(subprocess.Popen[str]):
    """A start of the program, with all that Popen can.

    Args:
        words: What follows the program's name on the command line.
        var_lib: A folder that it sees as /var/lib, which only root can give it.
        prefix: A program, with its arguments, that starts it: a new Python then.
        options: Those of Popen.
    """

    def __init__(
        self, words: Sequence[str], *, var_lib: Path | None = None, prefix: Sequence[str] = (), **options: Any
    ) -> None:
        self._task = {"words": list(words), "var_lib": var_lib and str(var_lib)}
        self._has_prefix = bool(prefix)
        argv = [*prefix, sys.executable, "-m", "pgdyno", *words]
        if var_lib is not None:
            argv = ["unshare", "--mount", "sh", "-c", f'mount --bind {var_lib} /var/lib && exec "$@"', "sh", *argv]
        super().__init__(argv, text=True, **options)

    def _execute_child(self, *given: Any) -> None:
        # Before these come arguments that `Program` leaves as they are, but for the folder and the environment.
        cwd, env, (to_read, _, _, to_write, _, to_complain) = given[5], given[6], given[10:16]
        environment = dict(os.environ if env is None else env)
        forks = None if self._has_prefix else _start_forks()
        if forks is None or not forks.fits(environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        streams = [own if end == -1 else end for own, end in enumerate((to_read, to_write, to_complain))]
        self.pid = forks.fork({**self._task, "cwd": str(cwd or Path.cwd()), "environment": environment}, streams)
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]


def run_program(
    words: Sequence[str], *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, and return what it printed."""
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class _Forks:
    """The process that forks, as its worker sees it."""

    def __init__(self) -> None:
        self._place, self._read = _find_place(), _read_at_start(os.environ)
        self._channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.ready_program", str(end.fileno())],
                cwd=Path(__file__).parents[1],
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **_WITHOUT_THREADS},
            )
        atexit.register(self._end)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether its children have what the worker's would: namespaces, control groups, and what Python reads as it starts."""
        return (self._place, self._read) == (_find_place(), _read_at_start(environment))

    def fork(self, task: dict[str, Any], streams: Sequence[int]) -> int:
        socket.send_fds(self._channel, [json.dumps(task).encode()], streams)
        return int(self._channel.recv(_MESSAGE_BYTES))

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@functools.cache
def _start_forks() -> _Forks | None:
    return _Forks() if platform.machine() in _CLONE_NUMBER else None


def _find_place() -> list[str]:
    spaces = (Path("/proc/thread-self/ns", kind).readlink() for kind in ("mnt", "net"))
    return [*map(str, spaces), Path("/proc/self/cgroup").read_text()]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


def _import_all() -> None:
    package = importlib.import_module("pgdyno")
    for module in pkgutil.walk_packages(package.__path__, "pgdyno."):
        importlib.import_module(module.name)
    # Comparisons import it when they need it.
    importlib.import_module("scipy.special")


def _fork_until_child(channel: socket.socket) -> None:
    """Fork for each task; return in the child, and end with the worker."""
    libc = ctypes.PyDLL(None)
    while True:
        message, streams, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
        if not message:
            sys.exit()
        threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        assert len([name for name in threads if name not in _SLEEPING]) == 1, threads
        # As os.fork() does it, but for whose child it is.
        ctypes.pythonapi.PyOS_BeforeFork()
        pid = libc.syscall(_CLONE_NUMBER[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            channel.close()
            _become(json.loads(message), streams, libc)
            return
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        for stream in streams:
            os.close(stream)
        channel.send(str(pid).encode())


def _become(task: dict[str, Any], streams: Sequence[int], libc: ctypes.PyDLL) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(streams) + 1)
    if task["var_lib"] is not None:
        assert libc.unshare(_CLONE_NEWNS) == 0
        assert libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        assert libc.mount(os.fsencode(task["var_lib"]), b"/var/lib", None, _MS_BIND, None) == 0
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["environment"])
    time.tzset()
    sys.argv[1:] = task["words"]


if __name__ == "__main__":
    _import_all()
    # What is there by now is no garbage of a child.
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        _fork_until_child(socket.socket(fileno=int(sys.argv[1])))
    from pgdyno.__main__ import main

    main()
