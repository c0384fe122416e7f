"""Check a server and a kernel before settings are applied, and refuse what cannot be applied or undone.

This module changes nothing. The server's own program tries the values: it reads them as a start would, and reports in
its own words what it refuses.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, SpecError
from pgdyno.run.change.boot_files import ETC
from pgdyno.run.change.kept_file import FileCopy, read_copy
from pgdyno.run.change.named_server import NamedServer
from pgdyno.run.change.server_conf import NAME
from pgdyno.run.change.settings_state import RunningSettings, ask_program, ask_state, find_differing
from pgdyno.run.change.starter import ServerOrigin, find_origin
from pgdyno.run.change.sysctl import check_sysctls, find_pools
from pgdyno.run.change.sysfs import check_sysfs
from pgdyno.run.given.data_folder import Postmaster, find_data_folder, find_strangers
from pgdyno.run.given.state import read_huge_pages
from pgdyno.run.host.clock import monotonic_s
from pgdyno.spec.setting import check_tunable

_NAME = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*", re.ASCII)
# Sources that override the configuration files. Source: PostgreSQL 18 src/include/utils/guc.h, GucSource.
_BEFORE_START = frozenset({"command line", "environment variable"})
# A server removes its postmaster.pid before it ends; freeing gigabytes of memory takes it seconds.
_ENDING_PATIENCE_S = 10.0
_POLL_S = 0.05


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are not applied, and the reason."""

    what: str
    names: tuple[str, ...]
    reason: str


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A running server that is to be changed."""

    postmaster: Postmaster
    state: RunningSettings
    origin: ServerOrigin


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that can be applied, and the state of the machine before; nothing is changed yet."""

    server: NamedServer | None
    settings: dict[str, str]
    """PostgreSQL's settings, by name in lower case."""
    conf: FileCopy | None
    """The postgresql.auto.conf; None if there is none."""
    running: Running | None
    """The running server; None if the server is stopped, or there is none."""
    sysctls: dict[str, str]
    waiting_pools: tuple[str, ...]
    """The sysctls that reserve memory which the running server holds elsewhere until it is restarted."""
    sysfs: dict[str, str]
    etc: Path
    left_out: tuple[LeftOut, ...]

    @property
    def restarting(self) -> tuple[str, ...]:
        """Return the names that take effect only at a restart: settings of the server and pools of huge pages."""
        if self.server is None or self.running is None:
            return ()
        shown = self.running.state.settings
        differing = find_differing(self.settings, shown, self.server.major)
        waiting = (name for name in differing if shown[name].context == "postmaster")
        return (*waiting, *self.waiting_pools)


def find_named_server(path: Path, *, bindir: Path | None = None) -> NamedServer:
    """Find the server of a data directory, and check that this account may change it.

    Args:
        path: The data directory that the user named.
        bindir: The folder of programs that the user named; None: that of the running server, or else of an installation
            of the same version.

    Raises:
        SpecError: The path is not a data directory.
        HostError: The directory may not be read, belongs to another account, or no programs for it are found.
    """
    folder = find_data_folder(path, bindir=bindir)
    if os.geteuid() not in {0, folder.uid}:
        raise HostError(
            f"{folder.path} is another account's",
            detail=f"uid {folder.uid}",
            hint="run pgdyno as root or as that account",
        )
    return NamedServer(**msgspec.structs.asdict(folder))


def prepare_apply(
    server: NamedServer | None,
    *,
    settings: Mapping[str, str],
    sysctls: Mapping[str, str],
    sysfs: Mapping[str, str],
    etc: Path = ETC,
) -> Prepared:
    """Check whether settings can be applied, without changing anything.

    Args:
        server: The server to change; None to apply kernel settings only.
        settings: PostgreSQL's settings, with values as ALTER SYSTEM takes them.
        sysctls: Kernel settings, with values as `sysctl -w` takes them.
        sysfs: Values by path below /sys.
        etc: The folder with the files that set kernel settings at each boot.

    Raises:
        SpecError: The server or the kernel does not know a setting or refuses its value, or pgdyno could not undo it.
        HostError: The server cannot be changed or queried. Kernel settings that this account may not change are no
            error: they are left out.
    """
    kernel, left_out = _find_kernel_part(sysctls, sysfs)
    named = {name.lower(): value for name, value in settings.items()}
    if server is None and named:
        raise ValueError("settings of PostgreSQL need a server")
    pools = find_pools(kernel["sysctls"])
    is_concerned = bool(named or pools)
    conf, running = _read_server(server, named) if server is not None and is_concerned else (None, None)
    return Prepared(
        server=server if is_concerned else None,
        settings=named,
        conf=conf,
        running=running,
        sysctls=kernel["sysctls"],
        waiting_pools=pools if running is not None and not read_huge_pages(running.postmaster.id.pid) else (),
        sysfs=kernel["sysfs"],
        etc=etc,
        left_out=left_out,
    )


def _find_kernel_part(
    sysctls: Mapping[str, str], sysfs: Mapping[str, str]
) -> tuple[dict[str, dict[str, str]], tuple[LeftOut, ...]]:
    left_out = []
    kernel: dict[str, dict[str, str]] = {}
    for part, words, values, check in (
        ("sysctls", "kernel settings", sysctls, check_sysctls),
        ("sysfs", "settings below /sys", sysfs, check_sysfs),
    ):
        try:
            kernel[part] = check(values)
        except HostError as error:
            kernel[part] = {}
            left_out.append(LeftOut(what=words, names=tuple(values), reason=error.fact))
    return kernel, tuple(left_out)


def _read_server(server: NamedServer, settings: Mapping[str, str]) -> tuple[FileCopy | None, Running | None]:
    for name in settings:
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} is no name of a setting")
        check_tunable(name)
    postmaster = server.postmaster()
    running = _read_running(server, postmaster, settings) if postmaster is not None else None
    if running is None:
        _check_stopped(server)
    path = server.path / NAME
    conf = read_copy(path, uid=server.uid)
    # ALTER SYSTEM could still replace the file, but an owner who makes it read-only does so on purpose.
    if conf is not None and (not conf.mode & 0o200 or not os.access(path, os.W_OK)):
        raise HostError(
            f"{path} is read-only", hint="it was made read-only on purpose: change the settings where they are managed"
        )
    ask_program(server, "shared_buffers", settings, running.state.config_file if running else None)
    return conf, running


def _read_running(server: NamedServer, postmaster: Postmaster, settings: Mapping[str, str]) -> Running:
    state = ask_state(server, list(settings))
    if not state.is_superuser:
        raise HostError(
            f"the server in {server.path} lets pgdyno in, but not as a superuser",
            hint="let its own account be a superuser by peer authentication on its socket",
        )
    if state.data_directory is None or Path(state.data_directory).resolve() != server.path:
        raise HostError("another server answers", detail=f"it serves {state.data_directory}, not {server.path}")
    if state.is_in_recovery:
        raise _standing_by(server)
    if not state.may_alter_system:
        raise _no_alter_system()
    beaten = [f"{name}: {shown.source}" for name, shown in state.settings.items() if shown.source in _BEFORE_START]
    if beaten:
        raise HostError(
            "the server was started with settings that override those of its files",
            detail="\n".join(beaten),
            hint="remove them from the command or environment that starts the server, or leave them out here",
        )
    return Running(postmaster=postmaster, state=state, origin=find_origin(server, postmaster.id.pid))


def _check_stopped(server: NamedServer) -> None:
    deadline_s = monotonic_s() + _ENDING_PATIENCE_S
    while (other := find_strangers(server.path)) is not None and monotonic_s() < deadline_s:
        time.sleep(_POLL_S)
    if other is not None:
        raise HostError(
            f"a server process works in {server.path}, but its postmaster.pid names no server that runs here",
            detail=f"pid {other}, of another container, or left over by a server that was killed",
            hint="run pgdyno where the server runs, or end what is left of it",
        )
    if any((server.path / name).exists() for name in ("standby.signal", "recovery.signal")):
        raise _standing_by(server)
    if not (config := server.config_file()).exists():
        raise HostError(
            f"the configuration of the server in {server.path} is elsewhere",
            detail=f"there is no {config}",
            hint="start the server first: only then it tells where its configuration is",
        )
    if server.major >= 17 and ask_program(server, "allow_alter_system").strip() == "off":
        raise _no_alter_system()


def _standing_by(server: NamedServer) -> HostError:
    return HostError(
        f"the server in {server.path} is a standby or in recovery",
        hint="tune its primary; here, settings that differ from the primary's may stop the replay",
    )


def _no_alter_system() -> HostError:
    return HostError(
        "the server refuses ALTER SYSTEM",
        detail="allow_alter_system = off",
        hint="another tool manages its configuration: give that tool the settings as a fragment",
    )
