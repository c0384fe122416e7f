"""A process that has imported the program, and forks for each start a child that is its parent's own.

The child is as `subprocess.Popen` would have started it, with its folder, environment and descriptors, and begins where a
new Python does, in `main`. What a fork would not have as a new Python has it is started as one: see `Forks.fits`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from pgdyno.run.host.helper import helper_argv
from pgdyno.run.host.process import wrap

_MESSAGE_BYTES = 1 << 18
_MOST_DESCRIPTORS = 32
# Where a child writes its command line.
_ROOM = " " * (1 << 14)
# Source: linux/sched.h, sys/mount.h, sys/prctl.h, and the unistd.h of each machine.
_CLONE_PARENT, _CLONE_NEWNS = 0x8000, 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG = 1
_CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
_WITHOUT_THREADS = {"_RJEM_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
# Of the threads that an import starts, the only one that cannot be turned off. It sleeps, and no child waits for it.
_SLEEPING = {"polars-ooc-clea"}


class Forks:
    """The process that forks, as its parent sees it.

    Args:
        channel: Leads to it.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._place, self._read = channel, _find_place(), _read_at_start(os.environ)

    def fits(self, environment: Mapping[str, str], *, names: tuple[str, ...] = ("PYTHON", "LC_", "LANG")) -> bool:
        """Whether its children have what the parent's would: what is inherited, and what Python reads as it starts."""
        read, other = (
            {name: value for name, value in each.items() if name.startswith(names)}
            for each in (self._read, _read_at_start(environment))
        )
        return (self._place, read) == (_find_place(), other)

    def fork(self, task: dict[str, Any], descriptors: Mapping[int, int]) -> int:
        """Fork a child for a task, and give it descriptors of this process under other numbers."""
        numbered = {**task, "numbers": list(descriptors)}
        socket.send_fds(self._channel, [json.dumps(numbered).encode()], list(descriptors.values()))
        return int(self._channel.recv(_MESSAGE_BYTES))


@functools.cache
def start_forks() -> Forks | None:
    """Start the process of a test worker."""
    if platform.machine() not in _CLONE_NUMBER:
        return None
    channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with end:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", str(end.fileno()), _ROOM],
            cwd=Path(__file__).parents[1],
            pass_fds=[end.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **_WITHOUT_THREADS},
        )
    atexit.register(process.wait)
    atexit.register(channel.close)
    return Forks(channel)


class HelperPopen(subprocess.Popen[bytes]):
    """A Popen that forks the helpers which pgdyno starts, and starts all else as ever."""

    find_forks: Callable[[], Forks | None] = staticmethod(start_forks)
    """Return those of this process."""

    def _execute_child(self, *given: Any) -> None:
        argv, (pass_fds, cwd, env), ends = given[0], given[4:7], (given[10], given[13], given[15])
        forks = self.find_forks() if _is_helper(argv) else None
        if forks is None or -1 in ends or not forks.fits(env, names=("PYTHON",)):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        helper = argv[argv.index(sys.executable) :]
        death_signal = signal.Signals[f"SIG{argv[1].partition('=')[2]}"]
        task = {
            "helper": helper,
            "signal": death_signal,
            "parent": os.getpid(),
            "cwd": str(cwd),
            "environment": dict(env),
        }
        self.pid = forks.fork(task, {**dict(enumerate(ends)), **{number: number for number in pass_fds}})
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]


def _is_helper(argv: object) -> bool:
    wrapped = wrap(helper_argv(""), user=None)[:-1]
    # The death signal may be any.
    return isinstance(argv, list) and (argv[0], argv[2 : len(wrapped)]) == (wrapped[0], wrapped[2:])


def _find_place() -> list[object]:
    spaces = (Path("/proc/thread-self/ns", kind).readlink() for kind in ("mnt", "net"))
    inherited = (os.geteuid(), os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE))
    return [*map(str, spaces), Path("/proc/self/cgroup").read_text(), os.sched_getaffinity(0), inherited]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


def _make_ready() -> None:
    """Import, read and compile here what each child would else for itself, as far as it starts no thread."""
    package = importlib.import_module("pgdyno")
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(package.__path__, "pgdyno.")]
    importlib.import_module("tests.quick")
    importlib.import_module("tests.stopping")
    # What commands import when they need it: comparisons the first, values on the command line the second.
    needed = ("scipy.special", "typer._adapters", "pydantic.plugin._loader", "polars._utils.parquet", "tomli_w")
    for name in (*needed, "rich._emoji_codes", "typer._click.decorators"):
        importlib.import_module(name)
    # It loads the widths of all characters at the first that may be wide.
    importlib.import_module("rich.cells").get_character_cell_size("▁")
    templates = importlib.import_module("pgdyno.report.forms.html")._environment()
    for name in templates.list_templates(extensions=["j2"]):
        templates.get_template(name)
    for module in modules:
        if module.__name__.startswith("pgdyno.facts."):
            _read_facts(module)
    # msgspec keeps what it finds out of a class at its first use.
    for kind in _list_structs(msgspec.Struct):
        with contextlib.suppress(TypeError):  # some hold what no file does
            msgspec.json.Decoder(kind)


def _read_facts(module: ModuleType) -> None:
    """Call what a module calls once and keeps."""
    for read in vars(module).values():
        if hasattr(read, "cache_info") and not inspect.signature(read).parameters:
            read()


def _list_structs(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from _list_structs(kind)


def _fork_until_child(channel: socket.socket) -> dict[str, Any]:
    """Fork for each task; return it in the child, and end with the parent."""
    libc = ctypes.PyDLL(None)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        assert len([name for name in threads if name not in _SLEEPING]) == 1, threads
        # As os.fork() does it, but for whose child it is.
        ctypes.pythonapi.PyOS_BeforeFork()
        pid = libc.syscall(_CLONE_NUMBER[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            channel.close()
            task: dict[str, Any] = json.loads(message)
            _become(task, descriptors, libc)
            return task
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(pid).encode())


def _become(task: dict[str, Any], descriptors: Sequence[int], libc: ctypes.PyDLL) -> None:
    if "helper" in task:
        os.setsid()
        libc.prctl(_PR_SET_PDEATHSIG, task["signal"], 0, 0, 0)
        if os.getppid() != task["parent"]:
            os._exit(1)
        _show_command_line(task["helper"])
    numbers = task["numbers"]
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(numbers) + 1) for descriptor in descriptors]
    for number, descriptor in zip(numbers, aside, strict=True):
        os.dup2(descriptor, number)
    for descriptor in {*range(3, max(*descriptors, *aside) + 1)} - {*numbers}:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    if task.get("var_lib") is not None:
        assert libc.unshare(_CLONE_NEWNS) == 0
        assert libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        assert libc.mount(os.fsencode(task["var_lib"]), b"/var/lib", None, _MS_BIND, None) == 0
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["environment"])
    time.tzset()


def _show_command_line(argv: Sequence[str]) -> None:
    """Let /proc show it, where tests look for helpers that should be gone."""
    # Source: proc(5), arg_start and arg_end of /proc/pid/stat.
    begin, end = (int(word) for word in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    line = "\0".join(argv).encode() + b"\0"
    assert len(line) <= end - begin
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, len(line))


def _run(task: dict[str, Any]) -> None:
    """Run the program of a task, or a helper, to its end."""
    if "helper" in task:
        from pgdyno.run.host.helper import run_main

        module, sys.argv[1:] = task["helper"][4], task["helper"][5:]
        run_main(module)
    from pgdyno.__main__ import main
    from tests.quick import hurry
    from tests.stopping import stop_where_told

    hurry()
    stop_where_told()
    # A stream keeps what its descriptor was when it was opened: /dev/null, in which it can seek.
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=sys.stderr.encoding, errors="backslashreplace", closefd=False)
    sys.argv[1:] = task["words"]
    try:
        main()
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        code = int(ended.code or 0)
    # To take apart all modules at the end takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork_for_helpers() -> dict[str, Any] | None:
    """Make a process that forks the helpers of this program; return the task in its child."""
    channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        end.close()
        forks = Forks(channel)
        HelperPopen.find_forks = staticmethod(lambda: forks)
        subprocess.Popen = HelperPopen  # type: ignore[misc,assignment]
        return None
    channel.close()
    os.setsid()
    os.chdir("/")
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    return _fork_until_child(end)


def _serve(channel: socket.socket) -> None:
    _make_ready()
    # What is there by now is no garbage of a child.
    gc.freeze()
    try:
        task = _fork_until_child(channel)
        if task.get("forks_helpers"):
            task = _fork_for_helpers() or task
    except KeyboardInterrupt:
        return
    _run(task)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
