"""Start programs so that none of them can outlive pgdyno, not even after kill -9.

Every long-lived child is wrapped in util-linux's `setpriv` (an essential package of Debian and Ubuntu), which sets the
parent-death signal and, when pgdyno runs as root, drops to the unprivileged server user. Children get a session of
their own, so that Ctrl-C reaches pgdyno alone, and pgdyno decides in which order they stop.

The parent-death signal follows the *thread* that started the child: start long-lived children from the main thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG

_Result = TypeVar("_Result")
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
# Calls that keep the GIL: after one that lets it go, CPython 3.11 may raise the exception of Ctrl-C a few steps late.
_LIBC = ctypes.PyDLL(None)
_OF_ROOT = "/usr/sbin:/sbin"
_IF_PARENT_LIVES = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'


class ServerUser(msgspec.Struct, frozen=True, kw_only=True):
    """The account that owns the server, the load generator and their files."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """The supplementary groups."""

    @property
    def is_self(self) -> bool:
        """True if no change of user is needed."""
        return self.uid == os.geteuid()

    @property
    def temporary_folder(self) -> str:
        """The folder for temporary files that the account may write to; another account's TMPDIR is often closed to it."""
        usual = Path(tempfile.gettempdir()).resolve()
        if self.is_self:
            return str(usual)
        is_open = usual.stat().st_mode & 0o003 == 0o003 and all(each.stat().st_mode & 0o001 for each in usual.parents)
        return str(usual) if is_open else "/var/tmp"  # noqa: S108 - files of random names are made there


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a finished program: exit code and both outputs, decoded with replacement."""

    exit_code: int
    stdout: str
    stderr: str


def find_own_user() -> ServerUser:
    """Return the account of this process."""
    return ServerUser(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid())


def find_server_user(name: str | None = None) -> ServerUser:
    """Choose the unprivileged account for PostgreSQL: the caller's own, or for root `postgres`, else `nobody`.

    Args:
        name: The account that the user named, which overrides the choice if pgdyno runs as root.

    Raises:
        HostError: The named account does not exist, or is root.
    """
    if os.geteuid() != 0:
        return find_own_user()
    for candidate in (name,) if name else ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(candidate)
        except KeyError:
            continue
        if entry.pw_uid == 0:
            break
        return ServerUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise HostError(
        "no unprivileged account to run PostgreSQL as",
        detail=f"looked for: {name or 'postgres, nobody'}",
        hint="name one with --run-as USER; PostgreSQL refuses to run as root",
    )


def call_as(user: ServerUser, work: Callable[[], _Result]) -> _Result:
    """Call a function with another account's rights to files; new files belong to that account.

    Call this from the main thread. Children that the function starts have these rights, too.

    Raises:
        RuntimeError: Called from another thread, which would change the account of the whole process meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the account is changed in the main thread only")
    uid, gid = os.geteuid(), os.getegid()
    parent, death_signal = os.getppid(), _read_death_signal()
    # Not a `with` block: Ctrl-C between its parts would leave this process with the account's rights.
    try:
        os.setegid(user.gid)
        os.seteuid(user.uid)
        return work()
    finally:
        try:
            os.seteuid(uid)
        finally:
            os.setegid(gid)
            _ask_again_for(death_signal, parent)


def _read_death_signal() -> int:
    """Return the signal that the kernel sends this thread when its parent dies; 0: none."""
    found = ctypes.c_int()
    _LIBC.prctl(_PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0)
    return found.value


def _ask_again_for(death_signal: int, parent: int) -> None:
    """Have the kernel send a signal when the parent dies; it forgets that with each change of the account.

    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    if death_signal == 0:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        # It died meanwhile, and nothing was sent.
        signal.raise_signal(death_signal)


def find_program(name: str) -> str | None:
    """Find a program, also where root's are: after `su` without a hyphen, PATH lacks them."""
    return shutil.which(name) or shutil.which(name, path=_OF_ROOT)


def make_reachable(folder: Path) -> None:
    """Make a folder, and those above it, unless they exist; other accounts may enter what root makes, whatever root's umask.

    Raises:
        OSError: It cannot be made.
    """
    # The umask is that of all threads: it stays where there is nothing to make.
    if os.geteuid() != 0 or folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        return
    before = os.umask(0o022)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def wrap(argv: Sequence[str], *, user: ServerUser | None, death_signal: str = "KILL") -> list[str]:
    """Return the argv that runs `argv` as `user` and sends it `death_signal` when pgdyno dies.

    Args:
        argv: The program and its arguments.
        user: The account to drop to; None keeps the caller's.
        death_signal: The signal's name without SIG.

    Raises:
        HostError: `setpriv` is not installed.
    """
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    if not Path(setpriv).exists():
        raise HostError("setpriv is missing", detail=setpriv, hint="install the package util-linux")
    head = [setpriv, f"--pdeathsig={death_signal}"]
    if user is not None and not user.is_self:
        groups = f"--groups={','.join(map(str, user.groups))}" if user.groups else "--clear-groups"
        head += [f"--reuid={user.uid}", f"--regid={user.gid}", groups]
    # The kernel sends the signal only for a death that comes after setpriv has asked for it.
    return [*head, "--", "/bin/sh", "-c", _IF_PARENT_LIVES, "sh", str(os.getpid()), *argv]


def start(
    argv: Sequence[str],
    *,
    user: ServerUser | None = None,
    death_signal: str = "KILL",
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a long-lived program that dies with pgdyno. Call this from the main thread.

    Args:
        argv: The program and its arguments.
        user: The account that it runs as; None: the caller's.
        death_signal: The signal that it gets when pgdyno dies.
        stdin: Its standard input, as for `subprocess.Popen`; also its outputs.
        stdout: See `stdin`.
        stderr: See `stdin`.
        cwd: Its folder.
        env: Its environment; None: see `clean_environment`.
        inherited: Open descriptors that it keeps.

    Raises:
        HostError: The program is missing or may not be run.
        RuntimeError: Called from another thread, whose end would kill the child.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("long-lived children are started from the main thread")
    environment = dict(env) if env is not None else clean_environment()
    _require_program(argv[0], environment)
    try:
        child = subprocess.Popen(
            wrap(argv, user=user, death_signal=death_signal),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            pass_fds=inherited,
        )
    except OSError as exc:
        raise HostError(f"cannot start {argv[0]}", detail=str(exc)) from exc
    LOG.info("started pid %d: %s", child.pid, shlex.join(argv))
    return child


def run(
    argv: Sequence[str],
    *,
    user: ServerUser | None = None,
    timeout_s: float | None = 60.0,
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    is_foreign: bool = False,
    stdin: str = "",
    ends_group: bool = False,
    leaves_daemons: bool = False,
) -> Completed:
    """Run a program to its end and return its output; the caller judges a non-zero exit code.

    Args:
        argv: The program and its arguments.
        user: The account that it runs as; None: the caller's.
        timeout_s: How long it may take; None: as long as it takes.
        cwd: Its folder.
        env: Its environment; None: see `clean_environment`.
        is_foreign: True if `env` is that of a process of the account: nothing may be executed with it before the account
            is changed, because root must not load what it names in LD_PRELOAD.
        stdin: Its standard input.
        ends_group: Whether what it has started ends with it after `timeout_s` or Ctrl-C.
        leaves_daemons: Whether what it has started may keep its outputs open: they then are files, and only its own end is
            waited for.

    Raises:
        HostError: The program is missing or may not be run.
        StepFailedError: It did not end within `timeout_s`.
    """
    environment = dict(env) if env is not None else clean_environment()
    _require_program(argv[0], environment)
    # Python can only change it in a copy of this whole process, which takes ten times as long as setpriv.
    account = user if is_foreign and user is not None and not user.is_self else None
    began_s = monotonic_s()
    try:
        with (
            _opened_outputs(are_files=leaves_daemons) as outputs,
            subprocess.Popen(
                wrap(argv, user=None if account else user),
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=account.groups if account else None,
                stdin=subprocess.PIPE,
                stdout=outputs[0],
                stderr=outputs[1],
                cwd=cwd,
                env=environment,
                start_new_session=True,
            ) as child,
        ):
            try:
                said = child.communicate(stdin.encode(), timeout_s)
            except BaseException:
                _kill(child, with_group=ends_group)
                raise
            stdout, stderr = map(_read_output, outputs, said)
    except subprocess.TimeoutExpired as exc:
        raise StepFailedError(
            f"{Path(argv[0]).name} did not end within {timeout_s:g} s", detail=" ".join(argv)
        ) from exc
    except OSError as exc:
        raise HostError(f"cannot start {argv[0]}", detail=str(exc)) from exc
    LOG.info("ran in %.2f s, exit code %d: %s", monotonic_s() - began_s, child.returncode, shlex.join(argv))
    return Completed(
        exit_code=child.returncode,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )


@contextlib.contextmanager
def _opened_outputs(*, are_files: bool) -> Iterator[tuple[int | IO[bytes], int | IO[bytes]]]:
    if not are_files:
        yield subprocess.PIPE, subprocess.PIPE
        return
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        yield stdout, stderr


def _read_output(output: int | IO[bytes], said: bytes | None) -> bytes:
    if isinstance(output, int):
        return said or b""
    # A daemon may go on writing, and has the same position in the file.
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)


def _kill(child: subprocess.Popen[bytes], *, with_group: bool) -> None:
    # Until it was waited for, its number is no other group's.
    if with_group and child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def stop(process: subprocess.Popen[bytes], *, first: signal.Signals = signal.SIGTERM, patience_s: float = 5.0) -> int:
    """Stop a program that `start` started and return its exit code.

    It gets the signal `first`, and SIGKILL after `patience_s`.
    """
    if process.poll() is None:
        process.send_signal(first)
        # A program that was paused by SIGSTOP handles no signal before it continues.
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        LOG.info("stopped pid %d with %s: exit code %d", process.pid, first.name, process.returncode)
    return process.returncode


def _require_program(program: str, environment: Mapping[str, str]) -> None:
    # setpriv itself always starts: a missing program would look like that program's own exit code.
    if shutil.which(program, path=environment.get("PATH")) is None:
        raise HostError(
            f"cannot start {program}",
            detail="there is no such program, or it may not be run",
            hint="is the path right? A script needs the right to be executed (chmod +x)"
            if "/" in program
            else "install the package that has it",
        )


def describe_end(code: int) -> str:
    """Say how a program ended, by its exit code; a negative one is the number of the signal that killed it."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def clean_environment() -> dict[str, str]:
    """Return the environment for children: the caller's, without PG* variables and with LC_ALL=C.

    PG* variables would redirect clients.

    The C locale keeps the tools' messages parsable.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG") and not key.startswith("LC_")}
    return {**kept, "LC_ALL": "C", "LANG": "C"}
