"""Run the OS sampler, the server sampler and the pings beside a load, and report what they missed.

Beside a server elsewhere the OS sampler watches the machine of the load alone, into a file of its own. Where the server's
machine is watched, one more runs there, on that machine's clock; the exchanges with this clock are kept beside its file.

A sampler that fails leaves a gap and never fails a trial: its samples are absent, with the reason, and the load's own
figures stand. Nothing is judged or computed here; the children write their files themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from pgdyno.record.damage import NOT_JSON
from pgdyno.record.generators.parts import LOADS_DIR
from pgdyno.record.samples.clock import SERVER_CLOCK_FILE
from pgdyno.record.samples.files import (
    GENERATOR_FILE,
    OS_FILE,
    SERVER_FILE,
    read_os_samples,
    read_server_samples,
)
from pgdyno.record.samples.pings import PING, PINGS_FILE
from pgdyno.record.samples.pooler import POOLER, POOLER_FILE
from pgdyno.record.trial_data import GENERATOR
from pgdyno.run.host.helper import helper_argv
from pgdyno.run.link.far_look import find_parent, find_session
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample import os_sampler
from pgdyno.run.sample.child import Child, FarSampler, WatchedMachine
from pgdyno.run.sample.gaps import SamplerGap, find_gaps, find_ping_gaps, find_pooler_gaps

OS = "os sampler"
SERVER = "server sampler"
LOAD_LABEL = "load"
"""The name under which the OS sampler follows the load generator."""
STUDY_LABEL = "study"
"""The name under which it follows all processes of the study as one: this process and its descendants."""
SERVER_LABEL = "server"
"""The name under which it follows the backends of the server's clients."""
SERVER_SAMPLER_LABEL = "sampler_server"
BACKEND_LABEL = "sampler_backend"
_READY_WITHIN_S = 10.0


class _FirstLine(msgspec.Struct):
    backend_pids: tuple[int, ...] = ()


class Samplers:
    """Both samplers, and the pings of a server elsewhere, for the length of a `with` block.

    Enter it from the main thread, before the load starts.

    Args:
        directory: The existing folder for `os.jsonl` or `generator.jsonl`, `server.jsonl` and `pings.jsonl`.
        address: The server, and in `dbname` the database whose counters are read.
        loaded: The servers that the load connects to, whose counters are added up; empty if that is the server alone.
        interval_s: The seconds between samples.
        left_out: Those of `OS`, `SERVER` and `PING` that do not run.
        is_elsewhere: Whether the server is a given one: then this machine is sampled as the load's alone, and empty
            statements are timed on the load's way to the server.
        watches_standbys: Whether to sample how far the server's standbys lag.
        watched: The machine of a server elsewhere, if it is watched.
        load_links: Load hosts by name, which are sampled in place of this machine.
        shared_hosts: Those that are the server's machine, too.
        console: Where the load's pooler tells its counters; pings go through that pooler, too. None without a pooler.
    """

    def __init__(
        self,
        *,
        directory: Path,
        address: Address,
        loaded: Sequence[Address] = (),
        interval_s: float = 1.0,
        left_out: frozenset[str] = frozenset(),
        is_elsewhere: bool = False,
        watches_standbys: bool = False,
        watched: WatchedMachine | None = None,
        load_links: Mapping[str, SshLink] | None = None,
        shared_hosts: frozenset[str] = frozenset(),
        console: Address | None = None,
    ) -> None:
        self._directory = directory
        self._address = address
        self._loaded = loaded or (address,)
        self._interval_s = interval_s
        self._left_out = left_out
        self._is_elsewhere = is_elsewhere
        self._watches_standbys = watches_standbys
        self._watched = watched
        self._load_links = load_links or {}
        self._shared_hosts = shared_hosts
        self._loads: dict[str, FarSampler] = {}
        self._shared_pids: list[int] = []
        self._console = console
        self._os: Child | None = None
        self._far: FarSampler | None = None
        self._server: Child | None = None
        self._ping: Child | None = None
        self._pooler: Child | None = None
        self._gaps: tuple[SamplerGap, ...] = ()
        self._backend_pids: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        for name, link in self._load_links.items():
            folder = self._directory / LOADS_DIR / name
            folder.mkdir(parents=True, exist_ok=True)
            source = f"{GENERATOR}: {name}"
            self._loads[name] = FarSampler(source, link, self._interval_s, folder / GENERATOR_FILE)
        if self._is_elsewhere and not self._load_links:
            self._os = Child(GENERATOR, self._os_argv(), self._directory / GENERATOR_FILE)
        elif OS not in self._left_out and not self._is_elsewhere:
            self._os = Child(OS, self._os_argv(), self._directory / OS_FILE)
        self._tell_os(f"{STUDY_LABEL}+={os.getpid()}")
        if self._watched is not None:
            self._far = self._watch(self._watched)
        if SERVER not in self._left_out:
            self._server = self._connect_child(SERVER, self._server_argv(), SERVER_FILE, self._address, *self._loaded)
        # From here to the server is not the way of a load from elsewhere.
        if self._is_elsewhere and not self._load_links and PING not in self._left_out:
            way = self._console or self._loaded[0]
            self._ping = self._connect_child(PING, self._ping_argv(way), PINGS_FILE, way)
        if self._console is not None:
            self._pooler = self._connect_child(POOLER, self._pooler_argv(self._console), POOLER_FILE, self._console)
        self._wait_until_ready()
        if self._server is not None:
            self._follow_server_sampler(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped_s = time.monotonic()
        for child in self._children:
            child.stop(has_failed=kind is not None)
        self._gaps = (
            *(find_gaps(self._os, stopped_s, read_os_samples) if self._os else ()),
            *(find_gaps(self._far, stopped_s, read_os_samples) if self._far else ()),
            *(gap for one in self._loads.values() for gap in find_gaps(one, stopped_s, read_os_samples)),
            *(find_gaps(self._server, stopped_s, read_server_samples) if self._server else ()),
            *(find_ping_gaps(self._ping, stopped_s) if self._ping else ()),
            *(find_pooler_gaps(self._pooler, stopped_s, interval_s=self._interval_s) if self._pooler else ()),
        )

    @property
    def gaps(self) -> tuple[SamplerGap, ...]:
        """Return the periods that were missed; complete after the `with` block."""
        return self._gaps

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids of the running samplers, and of the backend that serves one, by name."""
        running = {child.source: child.pid for child in self._children if child.pid is not None}
        return {**running, BACKEND_LABEL: self._backend_pids[0]} if self._backend_pids else running

    def follow(self, label: str, *pids: int) -> None:
        """Tell the OS sampler to follow one more process and its threads, or several as one.

        `label` is the name in the samples; `LOAD_LABEL` for the load generator.
        """
        request = f"{label}={','.join(map(str, pids))}"
        self._tell_os(request)
        if self._far is not None and self._watched is not None and self._watched.is_here:
            self._far.say(f"{request}\n")

    def follow_far(self, host: str, label: str, *pids: int) -> None:
        """Tell the OS sampler on a load host to follow one more process there and its threads, or several as one."""
        there = ",".join(map(str, pids))
        self._loads[host].say(f"{label}={there}\n{STUDY_LABEL}+={there}\n")
        if host not in self._shared_hosts:
            return
        self._shared_pids += pids
        shared = ",".join(map(str, self._shared_pids))
        if self._far is not None:
            self._far.say(f"{label}={shared}\n")
        else:
            self._tell_os(f"{label}={shared}")
            self._tell_os(f"{STUDY_LABEL}+={os.getpid()},{shared}")

    def follow_tree(self, label: str, pid: int) -> None:
        """Tell the OS sampler to follow a process with all its descendants as one."""
        self._tell_os(f"{label}+={pid}")

    def follow_backends(self, *postmaster_pids: int) -> None:
        """Tell the OS sampler to follow the backends of the clients of one server or more as one, as `SERVER_LABEL`."""
        self._tell_os(f"{SERVER_LABEL}*={','.join(map(str, postmaster_pids))}")

    @property
    def _children(self) -> list[Child | FarSampler]:
        children = (self._os, self._server, self._ping, self._pooler, self._far, *self._loads.values())
        return [child for child in children if child is not None]

    def _watch(self, watched: WatchedMachine) -> FarSampler:
        """Start the sampler on the server's machine; the server is what the study uses there, with the load if that is there."""
        far = FarSampler(
            OS,
            watched.link,
            self._interval_s,
            self._directory / OS_FILE,
            clock=self._directory / SERVER_CLOCK_FILE,
            process=watched.postmaster_pid,
        )
        study = [watched.postmaster_pid, *([os.getpid()] if watched.is_here else [])]
        far.say(f"{STUDY_LABEL}+={','.join(map(str, study))}\n{SERVER_LABEL}*={watched.postmaster_pid}\n")
        return far

    def _tell_os(self, line: str) -> None:
        if self._os is not None:
            self._os.say(f"{line}\n")

    def _os_argv(self) -> list[str]:
        return [sys.executable, "-S", "-I", os_sampler.__file__, str(self._interval_s)]

    def _server_argv(self) -> list[str]:
        places = [word for one in self._loaded for word in ("--conninfo", one.aside().conninfo())]
        database = ("--watched-database", self._address.dbname)
        watched = ("--primary", self._address.aside().conninfo()) if self._watches_standbys else ()
        interval = ("--interval", str(self._interval_s))
        return helper_argv("pgdyno.run.sample.server_sampler", *places, *database, *interval, *watched)

    def _ping_argv(self, way: Address) -> list[str]:
        return helper_argv("pgdyno.run.sample.pinger", "--conninfo", way.aside().conninfo())

    def _pooler_argv(self, console: Address) -> list[str]:
        place = ("--conninfo", console.conninfo(), "--watched-database", self._address.dbname)
        return helper_argv("pgdyno.run.sample.pooler_sampler", *place, "--interval", str(self._interval_s))

    def _connect_child(self, source: str, argv: list[str], file: str, *places: Address) -> Child:
        inherited = tuple(dict.fromkeys(descriptor for place in places for descriptor in place.inherited))
        return Child(source, argv, self._directory / file, inherited=inherited)

    def _wait_until_ready(self) -> None:
        """Wait for the first sample of each, so that starting Python disturbs no measurement."""
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline_s:
            if all(child.has_lines(2) or not child.is_alive for child in self._children):
                return
            time.sleep(0.02)

    def _follow_server_sampler(self, child: Child) -> None:
        if child.process is not None:
            self.follow(SERVER_SAMPLER_LABEL, child.process.pid)
        if child.has_lines(1):
            first_line = child.path.read_bytes().partition(b"\n")[0]
            # An invalid first line is reported as a gap when all is read.
            with contextlib.suppress(*NOT_JSON):
                self._backend_pids = msgspec.json.decode(first_line, type=_FirstLine).backend_pids
            if self._backend_pids:
                self._follow_backends(self._backend_pids)

    def _follow_backends(self, pids: Sequence[int]) -> None:
        """Follow the sampler's own backends where the servers run."""
        request = f"{BACKEND_LABEL}={','.join(map(str, pids))}"
        if not self._is_elsewhere:
            self._tell_os(request)
        elif self._watched is None:
            self._follow_server_here(pids[0])
        elif self._far is not None and self._watched.has_same_pids:
            self._far.say(f"{request}\n")

    def _follow_server_here(self, backend_pid: int) -> None:
        """Follow a given server as a part of the study if it runs on this machine: no other program uses what it does."""
        here = find_session(backend_pid, f" {self._address.aside().dbname} ")
        postmaster_pid = None if here is None else find_parent(here)
        if postmaster_pid is not None:
            self._tell_os(f"{STUDY_LABEL}+={os.getpid()},{postmaster_pid}")
            self.follow_backends(postmaster_pid)
