"""Run pgbench on a load host: a stdlib-only program that is sent there, streams pgbench's log, and leaves nothing.

It imports nothing of pgdyno and runs on Python 3.7 or later. The first line on stdin is the request: `pgbench`, the program
or null; `argv`, its options, in which `{folder}` stands for a folder here and `{secret}` for a password file; `scripts`, script
files by name, in which each character stands for the byte of its number; `secret`, the password file's text or null;
`clients` and `threads`; `duration_s`; and `is_logged`. Without `argv` it says only which pgbench is here.

Standard output is pgbench's transaction log in frames: `THREAD SIZE` on a line, and so many bytes. Standard error has
answers to `clock WORD`, and one JSON document a line of everything else. pgbench starts at the word `begin`. It is frozen when
all its clients have a socket, until `go NANOSECONDS`, an instant of this machine's CLOCK_MONOTONIC, and ended in order after
`duration_s` from then, or at the word `end`; when stdin closes, it is killed. The kernel kills it with this program.

Script files and logs lie in memory in a folder that is removed as soon as pgbench has opened them all.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import functools
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - a log on a disk would disturb the load
MARK = "pgdyno-load-"
ROOM_BYTES = 64 << 20
LEFT_BYTES = 8 << 20
"""A file system with less room left loses lines of the log, which pgbench does not notice."""
LEAST_VERSION = 15
BLOCK_BYTES = 1 << 18
LAST_WORDS_BYTES = 1 << 18
SWEEP_S = 1.0
"""As often as pgbench writes a line of progress: to wake costs more than what a few thousand transactions a second write."""
AFTER_PROGRESS_S = 0.1
"""A busy pgbench writes the line a little late, and one that is missed waits for the next sweep."""
STOPPED_S = 10.0
VERSION_WITHIN_S = 20.0
"""For all programs together: who asks from the other end waits 30 s."""
CONNECTS_WITHIN_S = 60.0
PLACES = ("/usr/lib/postgresql/*/bin/pgbench", "/usr/pgsql-*/bin/pgbench", "/usr/local/pgsql/bin/pgbench")
PR_SET_PDEATHSIG = 1
PUNCH_HOLE = 0x02 | 0x01

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
SAYING = threading.Lock()


class LoadError(Exception):
    """An error for pgdyno: fact, detail and hint."""


def say(word: str, value: Any) -> None:
    """Write a line for pgdyno."""
    write_all(2, json.dumps({word: value}).encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in one piece among what other threads write."""
    with SAYING if descriptor == 2 else contextlib.nullcontext():
        while data:
            data = data[os.write(descriptor, data) :]


def read_line() -> bytes:
    """Read a line and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def find_pgbench(named: str | None) -> tuple[str, str, int]:
    """Return path, version and major version of the named pgbench, or of the newest one in PATH and in the usual places."""
    paths = [os.path.expanduser(named)] if named else [path for path in [shutil.which("pgbench")] if path]  # noqa: PTH111
    if not named:
        paths += [path for pattern in PLACES for path in glob.glob(pattern)]  # noqa: PTH207
    found, said = [], []
    until_s = time.monotonic() + VERSION_WITHIN_S
    for number, path in enumerate(paths):
        # One that hangs leaves time for those after it.
        within_s = (until_s - time.monotonic()) / (len(paths) - number)
        try:
            done = subprocess.run(
                [path, "--version"],
                # The words of pgdyno are not for it.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=within_s,
                preexec_fn=functools.partial(die_with_parent, os.getpid()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            said.append(f"{path} does not say its version within {within_s:.1f} s")
            continue
        except OSError as exc:
            said.append(str(exc))
            continue
        text = done.stdout.decode(errors="replace").strip()
        match = re.match(r"pgbench \(PostgreSQL\) ((\d+)\S*)", text)
        if match and done.returncode == 0:
            found.append((int(match.group(2)), path, match.group(1)))
        else:
            said.append(f"{path}: {text}")
    if not found:
        hint = (
            f"pgbench = {named!r} must name one there"
            if named
            else "install postgresql-client and postgresql-contrib there, or name one with pgbench = in its [hosts] table"
        )
        raise LoadError("there is no pgbench that runs", "; ".join(said), hint)
    major, path, version = max(found, key=lambda one: one[0])
    if major < LEAST_VERSION:
        raise LoadError(
            f"its pgbench is {version}, and pgdyno needs {LEAST_VERSION} or later",
            path,
            "install a newer one there, or name one with pgbench = in its [hosts] table",
        )
    return path, version, major


def make_folder() -> str:
    """Make the folder for script files and logs, and remove those of programs that were killed."""
    parent = MEMORY_FOLDER
    if not os.access(parent, os.W_OK) or find_room(parent) < ROOM_BYTES:
        parent = tempfile.gettempdir()
        if find_room(parent) < ROOM_BYTES:
            raise LoadError(
                "there is no room for pgbench's log",
                f"{MEMORY_FOLDER} and {parent} have less than {ROOM_BYTES >> 20} MB",
                "free some of it on that machine: `df -h`",
            )
        say("note", f"the transaction log was written to {parent}: {MEMORY_FOLDER} has no room")
    # A pid only means something in its namespace, which run/host/stale.py names alike.
    own = f"-{abs(os.stat('/proc/self/ns/pid').st_ino - 0xEFFFFFFC):x}-"  # noqa: PTH116
    for old in glob.glob(f"{parent}/{MARK}*{own}*"):  # noqa: PTH207
        pid = old[len(parent) + 1 + len(MARK) :].split("-")[0]
        if pid.isdigit() and not os.path.exists("/proc/" + pid):  # noqa: PTH110
            shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{MARK}{os.getpid()}{own}", dir=parent)


def find_room(folder: str) -> int:
    """Return the bytes that are free."""
    try:
        seen = os.statvfs(folder)
    except OSError:
        return 0
    return seen.f_bavail * seen.f_frsize


def hold_secret(text: str) -> int:
    """Return the descriptor of a password file in memory that only children inherit."""
    if not hasattr(os, "memfd_create"):
        raise LoadError(
            "a password needs Python 3.8 or later there",
            "this is " + sys.version.split()[0],
            "name one with python =",
        )
    descriptor = os.memfd_create("pgdyno", os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text.encode())
    return descriptor


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process with its parent."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The kernel does so only for a death that comes after this.
    if os.getppid() != parent:
        os._exit(1)


def runs_pgbench(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a child runs pgbench itself. Debian's is first a script, which has sockets of its own until it becomes pgbench."""
    if "pgbench" in os.path.basename(os.readlink(f"/proc/{child.pid}/exe")):  # noqa: PTH115, PTH119
        return True
    # A file that may be run but not read is no script.
    with contextlib.suppress(PermissionError), open(child.args[0], "rb") as program:  # type: ignore[index] # noqa: PTH123
        return program.read(2) != b"#!"
    return True


def count_sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):  # noqa: PTH208
        # A descriptor may be closed meanwhile.
        with contextlib.suppress(OSError):
            count += os.readlink(f"{folder}/{name}").startswith("socket:")  # noqa: PTH115
    return count


def count_cpu_s() -> float:
    """Return the CPU seconds of this program so far."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def read_epoch_offset_s() -> float:
    """Return the seconds since the epoch less CLOCK_MONOTONIC, by the quickest of a few looks: the others may have lost the CPU."""
    looks = []
    for _ in range(5):
        before_s, epoch_s, after_s = time.monotonic(), time.time(), time.monotonic()
        looks.append((after_s - before_s, epoch_s - (before_s + after_s) / 2.0))
    return min(looks)[1]


def choose_wait_s(age_s: float) -> float:
    """Return how long to wait until just after pgbench's next line of progress.

    Args:
        age_s: Seconds since its last one; below 0 where the clock was set.
    """
    return SWEEP_S if age_s < 0.0 else SWEEP_S + AFTER_PROGRESS_S - age_s % SWEEP_S


class Log:
    """One thread's log, which is read and freed while it grows."""

    def __init__(self, thread: int, path: str) -> None:
        self.thread = thread
        self.descriptor = os.open(path, os.O_RDWR)
        self.sent = 0

    def send(self) -> bool:
        """Send the next block and free it; return whether there may be more."""
        data = os.pread(self.descriptor, BLOCK_BYTES, self.sent)
        if not data:
            return False
        write_all(1, b"%d %d\n" % (self.thread, len(data)))
        write_all(1, data)
        until = (self.sent + len(data)) // 4096 * 4096
        begin = self.sent // 4096 * 4096
        if until > begin:
            LIBC.fallocate(self.descriptor, PUNCH_HOLE, begin, until - begin)
        self.sent += len(data)
        return len(data) == BLOCK_BYTES


class Load:
    """One run of pgbench."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.child = None  # type: subprocess.Popen[bytes] | None
        self.go_ns = None  # type: int | None
        self.logs = []  # type: list[Log]
        self.logged_in = ""
        self.is_over = threading.Event()
        self.may_begin = threading.Event()
        self.has_news = threading.Event()
        self.end_s = 0.0
        self.spent_s = 0.0
        self.until_s = None  # type: float | None
        self.failure = None  # type: LoadError | None

    def note_end(self, pid: int) -> None:
        """Note when pgbench ends."""
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.end_s = time.monotonic()
        self.has_news.set()

    def listen(self) -> None:
        """Answer and obey until stdin closes; then kill pgbench."""
        pending = b""
        while True:
            asked = os.read(0, 4096)
            if not asked:
                break
            signal.alarm(int(sys.argv[1]))
            *lines, pending = (pending + asked).split(b"\n")
            for line in lines:
                if line.startswith(b"clock "):
                    write_all(2, b"%b %d\n" % (line, time.monotonic_ns()))
                elif line.startswith(b"go "):
                    self.go_ns = int(line.split()[1])
                elif line == b"begin":
                    self.may_begin.set()
                elif line == b"end":
                    self.send(signal.SIGALRM)
        self.is_over.set()
        self.may_begin.set()
        self.has_news.set()
        self.send(signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send pgbench a signal, if it still runs. Those of Popen would wait for one that has ended, and take its exit code."""
        if self.child is not None and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, number)

    def run(self, program: str, folder: str) -> None:
        """Run it from start to end."""
        inherited = ()  # type: tuple[int, ...]
        secret = ""
        if self.request["secret"] is not None:
            inherited = (hold_secret(self.request["secret"]),)
            secret = f"/proc/self/fd/{inherited[0]}"
        for name, text in self.request["scripts"].items():
            Path(folder, name).write_bytes(text.encode("latin-1"))
        argv = [word.replace("{folder}", folder).replace("{secret}", secret) for word in self.request["argv"]]
        self.may_begin.wait()
        if self.is_over.is_set():
            return
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        with tempfile.TemporaryFile(dir=folder) as stdout, tempfile.TemporaryFile(dir=folder) as stderr:
            epoch_offset_s = read_epoch_offset_s()
            start_s = time.monotonic()
            self.child = subprocess.Popen(
                [program, *argv],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=dict(kept, LC_ALL="C", LANG="C"),
                preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no other thread holds a lock then
                pass_fds=inherited,
            )
            if self.is_over.is_set():
                # Stdin closed while there was no process yet to kill.
                self.send(signal.SIGKILL)
            said = [program, *self.request["argv"]]
            pids = {"pid": self.child.pid, "program_pid": os.getpid()}
            say("started", dict(pids, argv=said, start_s=start_s, epoch_offset_s=epoch_offset_s))
            threading.Thread(target=self.note_end, args=(self.child.pid,), daemon=True).start()
            self.hold(folder)
            watcher = threading.Thread(target=self.watch, daemon=True)
            watcher.start()
            self.stream(Tail(stderr.fileno()))
            watcher.join()
            self.check()
            _, status, usage = os.wait4(self.child.pid, 0)
            self.child.returncode = code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            stdout.seek(0)
            say(
                "done",
                {
                    "exit_code": code,
                    "end_s": self.end_s,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "own_cpu_s": count_cpu_s() - self.spent_s,
                    "stdout": stdout.read().decode(errors="replace"),
                },
            )

    def hold(self, folder: str) -> None:
        """Freeze pgbench when its clients have their sockets, remove the folder, and let it go on when that is said."""
        child = self.child
        if child is None:
            return
        deadline_s = time.monotonic() + CONNECTS_WITHIN_S
        while True:
            # Each thread opens its log before it connects; before that, pgbench has a connection for itself.
            names = glob.glob(f"{folder}/log.{child.pid}*")  # noqa: PTH207
            is_open = len(names) == (self.request["threads"] if self.request["is_logged"] else 0)
            try:
                is_ready = is_open and runs_pgbench(child) and count_sockets(child.pid) >= self.request["clients"]
            except OSError:
                is_ready = False
            # One that has ended explains itself.
            if is_ready or os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            if time.monotonic() > deadline_s:
                raise LoadError(f"pgbench did not connect its clients within {CONNECTS_WITHIN_S:g} s", "", "")
            time.sleep(0.001)
        if is_ready:
            self.send(signal.SIGSTOP)
        ends = [name.rpartition(f"/log.{child.pid}")[2].lstrip(".") for name in names]
        self.logs = [Log(int(end or 0), name) for name, end in zip(names, ends)]  # noqa: B905 - strict came with Python 3.10
        # Open files go on without their names, and nothing is left to remove.
        shutil.rmtree(folder, ignore_errors=True)
        self.logged_in = os.path.dirname(folder)  # noqa: PTH120
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        say("connected", is_ready)
        while is_ready and self.go_ns is None and not self.is_over.wait(0.001):
            pass
        if self.go_ns is not None:
            time.sleep(max(0.0, (self.go_ns - time.monotonic_ns()) / 1e9))
            self.until_s = self.go_ns / 1e9 + self.request["duration_s"]
        self.spent_s = count_cpu_s()
        self.send(signal.SIGCONT)

    def stream(self, tail: Tail) -> None:
        """Send what pgbench writes until it has ended; a link that is slow holds this up, and nothing else."""
        is_behind = has_ended = False
        while is_behind or not has_ended:
            if not is_behind:
                self.has_news.wait(choose_wait_s(tail.age_s()))
            is_behind, has_ended = False, self.end_s > 0.0
            tail.read(is_last=has_ended)
            self.check()
            # One block of each in turn, so that none waits until all of another one was sent.
            for log in self.logs:
                is_behind |= log.send()
                self.check()

    def check(self) -> None:
        """Raise what was found meanwhile."""
        if self.failure is not None:
            raise self.failure

    def watch(self) -> None:
        """End pgbench when its time is over, and look whether its log has room, until it has ended."""
        stopped_s = None  # type: float | None
        try:
            is_over = False
            while not is_over:
                left_s = SWEEP_S if self.until_s is None else min(SWEEP_S, self.until_s - time.monotonic())
                if left_s <= 0.0:
                    # With -T, pgbench sets itself this alarm. Source: pgbench.c, handle_sig_alarm(), 15 to 18.
                    self.send(signal.SIGALRM)
                    self.until_s, left_s = None, SWEEP_S
                is_over = self.has_news.wait(left_s)
                # Look now: room that is short may be back once the log is sent, and lines are lost all the same.
                self.check_room()
                stopped_s = self.check_stopped(stopped_s)
        except LoadError as error:
            self.failure = error

    def check_room(self) -> None:
        """Make sure that the log has room."""
        if self.logs and find_room(self.logged_in) < LEFT_BYTES:
            raise LoadError(
                f"{self.logged_in} is full, so that lines of pgbench's log are lost",
                "",
                f"free some of it on that machine: `df -h {self.logged_in}`",
            )

    def check_stopped(self, since_s: float | None) -> float | None:
        """Return since when pgbench has been stopped; raise an error if that is long."""
        if self.child is None:
            return None
        try:
            state = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return None
        if state != "T":
            return None
        now_s = time.monotonic()
        if since_s is not None and now_s - since_s > STOPPED_S:
            raise LoadError(
                f"pgbench was stopped by a signal for more than {STOPPED_S:g} s", "", "who sent SIGSTOP to it?"
            )
        return now_s if since_s is None else since_s


class Tail:
    """pgbench's standard error, of which whole lines are passed on."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.sent = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def age_s(self) -> float:
        """Return the seconds since pgbench has written to it."""
        return time.time() - os.fstat(self.descriptor).st_mtime

    def read(self, *, is_last: bool) -> None:
        """Pass on what is new; at the end all of it, but no more than `LAST_WORDS_BYTES`."""
        left_out = os.fstat(self.descriptor).st_size - LAST_WORDS_BYTES - self.sent if is_last else 0
        if left_out > 0:
            self.sent += left_out
            say("stderr", f"\n[{left_out} bytes are left out here]\n")
        while True:
            data = os.pread(self.descriptor, 1 << 16, self.sent)
            self.sent += len(data)
            text = self.decoder.decode(data, is_last and not data)
            if text:
                say("stderr", text)
            if not (is_last and data):
                return


def main() -> None:
    """Do what is asked."""
    request = json.loads(read_line().decode())
    load = Load(request)
    folder = None

    def clean_up(*_: object) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        # The kernel kills pgbench with this process.
        os._exit(1)

    # Until pgbench has opened its files, there is something to remove.
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, clean_up)
    threading.Thread(target=load.listen, daemon=True).start()
    try:
        try:
            program, version, major = find_pgbench(request["pgbench"])
            room = find_room(MEMORY_FOLDER)
            say("found", {"program": program, "version": version, "major": major, "memory_folder_bytes": room})
            if request["argv"] is not None:
                folder = make_folder()
                load.run(program, folder)
        except OSError as exc:
            raise LoadError("pgbench cannot be run", str(exc), "") from exc
    except LoadError as error:
        fact, detail, hint = error.args
        say("failed", {"fact": fact, "detail": detail, "hint": hint})
    finally:
        if load.child is not None and load.child.returncode is None:
            load.send(signal.SIGKILL)
            load.child.wait()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    load.is_over.wait()


if __name__ == "__main__":
    main()
