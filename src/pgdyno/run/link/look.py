"""Look at another machine: its facts by the readers of this one, from files that a program there has read."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.machine.disk_facts import UNKNOWN_DISK, DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.samples.clock import ClockExchange
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.facts import LiveFacts, describe_disk, list_facts_files, read_host_facts
from pgdyno.run.host.tree import split_mounts
from pgdyno.run.link import far_look
from pgdyno.run.link.boot import SILENCE_S
from pgdyno.run.link.far_program import FarProgram
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S, SshLink


class ServerSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a server, by which its machine is known."""

    pid: int
    where: str
    """The client as the title of the backend has it: `10.0.0.7(51234)`, or `[local]`."""
    data_directory: str | None
    """None where the role may not know it."""


class FarLook(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a machine."""

    facts: HostFacts
    python: str
    boot_id: str
    client_address: str | None
    """The IP address from which ssh came there; None if the account there is not told."""
    pid_namespace: str
    asked_pid: int | None
    """The session's process id as the server knows it; None if none was asked for."""
    session_pid: int | None
    """The same as the machine knows it; None if it is not there."""
    postmaster_pid: int | None
    exchanges: tuple[ClockExchange, ...]
    """One burst."""

    @property
    def place(self) -> tuple[str, str]:
        """What `read_place` says on that machine."""
        return self.boot_id, self.pid_namespace


class _FarDisk(msgspec.Struct, kw_only=True):
    numbers: str = ""
    room: tuple[int, int] | None = None
    device: str | None = None
    is_partition: bool = False


class _Looked(msgspec.Struct, kw_only=True):
    session_pid: int | None
    postmaster_pid: int | None
    client_address: str | None
    python: str
    kernel: str
    architecture: str
    cpu_count: int
    load_average_1min: float
    boot_id: str
    pid_namespace: str
    groups: str
    mounts: str
    server_mounts: str
    texts: dict[str, str]
    disk: _FarDisk


def look_at(link: SshLink, session: ServerSession | None = None) -> FarLook:
    """Look at a machine, and for a session of the server that should run there.

    Raises:
        HostError: There is no connection, no Python, or no /proc.
        StepFailedError: The program does not start there, or does not answer, or its answers do not come through.
    """
    request = msgspec.json.encode({"files": list_facts_files(), "session": session}) + b"\n"
    source = Path(far_look.__file__)
    program = FarProgram(link, source, [str(SILENCE_S)], output=link.folder / "look", request=request)
    try:
        deadline_s = monotonic_s() + ANSWERS_WITHIN_S
        while program.is_alive and not program.has_lines(1) and monotonic_s() < deadline_s:
            time.sleep(0.005)
    finally:
        program.stop()
    printed = program.path.read_bytes()
    try:
        looked = msgspec.json.decode(printed, type=_Looked)
    except NOT_JSON as exc:
        raise StepFailedError(f"{link.destination} cannot be looked at", detail=program.failure or str(exc)) from exc
    # The first burst may have waited for the look.
    bursts = [one for one in program.exchanges if one.burst > 0] or program.exchanges
    if not bursts:
        raise StepFailedError(
            f"{link.destination} does not say its time",
            detail=program.failure or "it answers on standard error, and nothing comes from there",
            hint=f"what a program prints there must come through: `ssh {link.destination} 'echo here >&2'`",
        )
    return FarLook(
        facts=_make_facts(link, looked, session),
        python=looked.python,
        boot_id=looked.boot_id,
        client_address=looked.client_address,
        pid_namespace=looked.pid_namespace,
        asked_pid=None if session is None else session.pid,
        session_pid=looked.session_pid,
        postmaster_pid=looked.postmaster_pid,
        exchanges=tuple(bursts),
    )


def _make_facts(link: SshLink, looked: _Looked, session: ServerSession | None) -> HostFacts:
    if "/proc/meminfo" not in looked.texts:
        raise HostError(f"/proc of {link.destination} is not readable", hint="pgdyno watches Linux, with /proc mounted")
    # What a killed pgdyno leaves in the link's folder is removed with it.
    with TemporaryDirectory(dir=link.folder) as name:
        root = Path(name)
        texts = {**looked.texts, "/proc/self/cgroup": looked.groups, "/proc/self/mountinfo": looked.mounts}
        for path, text in texts.items():
            _write(root, path, text)
        return read_host_facts(
            root,
            root=root,
            live=LiveFacts(
                kernel=looked.kernel,
                architecture=looked.architecture,
                cpu_count=looked.cpu_count,
                load_average_1min=looked.load_average_1min,
            ),
            data_disk=_make_disk(root, looked, None if session is None else session.data_directory),
        )


def _make_disk(root: Path, looked: _Looked, data_directory: str | None) -> DiskFacts:
    disk = looked.disk
    if data_directory is None or not disk.numbers:
        return UNKNOWN_DISK
    if disk.device is not None:
        device = _inside(root, disk.device)
        device.mkdir(parents=True, exist_ok=True)
        if disk.is_partition:
            (device / "partition").touch()
        link = _inside(root, f"/sys/dev/block/{disk.numbers}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
    size_bytes, free_bytes = disk.room or (0, 0)
    return describe_disk(
        Path(data_directory),
        mounts=split_mounts(looked.server_mounts),
        major_minor=disk.numbers,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        root=root,
    )


def _write(root: Path, path: str, text: str) -> None:
    target = _inside(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _inside(root: Path, path: str) -> Path:
    """Return the place of another machine's file in a folder here, which its name must not lead out of."""
    target = (root / path.lstrip("/")).resolve()
    if not target.is_relative_to(root.resolve()):
        raise StepFailedError("a machine answers with a path that leads elsewhere", detail=path)
    return target
