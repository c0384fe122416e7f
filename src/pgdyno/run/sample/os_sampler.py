"""Sample the OS: one stdlib-only program that reads /proc and /sys and prints a JSON line each interval.

The program imports nothing of pgdyno and runs as `python3 -S -I os_sampler.py SECONDS [SILENCE [PID]]`, Python 3.7 or
later, so that the same source watches another machine through ssh (`run/link`); that is why it is one long file. Its
arguments are the interval, there the seconds after which it ends if nothing comes on stdin, and the process whose control
group and CPUs it reads in place of its own: argparse would take a third of the CPU time of its start. It prints raw cumulative counters in the kernel's own units;
shares and rates are computed from the record. To disturb little, it keeps files open and reads them with pread, copies
digits without parsing them, and leaves out what has not changed since the line before.

The first line is the header. In each later line `t` is CLOCK_MONOTONIC in seconds, `cost_s` the CPU seconds spent by
this program so far, and each other key a source with its values in the order that the header's `fields` names; a source
left out is unchanged, a source that is null is gone. The last line carries `end`, the reason for ending, and `given_up`,
the reason for each request that needed more open files than this process may have: a part of it would be a wrong sum.

The program ends when stdin closes, on SIGTERM or SIGINT, or when its parent dies. A line `LABEL=PID,PID` on stdin makes it
follow processes as one, a line `LABEL+=PID,PID` processes with all their descendants as one, and a line `LABEL*=PID,PID` the
backends of the postmasters' clients as one. A line `clock WORD` is answered at once, on stderr, with CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import resource
import select
import signal
import sys
import time

FORMAT_VERSION = 1
# Source: Linux Documentation/filesystems/proc.rst section 1.8, Documentation/admin-guide/iostats.rst,
# Documentation/accounting/psi.rst, Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-stats.rst.
CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
SCHED_FIELDS = ("ctxt", "processes", "procs_running", "procs_blocked")
DISK_FIELDS = (
    *("reads", "reads_merged", "sectors_read", "read_ms", "writes", "writes_merged", "sectors_written", "write_ms"),
    *("in_flight", "io_ms", "weighted_io_ms", "discards", "discards_merged", "sectors_discarded", "discard_ms"),
    *("flushes", "flush_ms"),
)
MEMORY_FIELDS = (
    *("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree", "Dirty", "Writeback"),
    *("AnonPages", "Shmem", "PageTables", "Slab", "AnonHugePages"),
    *("HugePages_Total", "HugePages_Free", "HugePages_Rsvd"),
)
VM_FIELDS = (
    *("pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault", "nr_dirtied", "nr_written", "oom_kill"),
    *("nr_dirty_threshold", "nr_dirty_background_threshold"),
)
FIELDS = {
    "cpu": CPU_FIELDS,
    "sched": SCHED_FIELDS,
    "load": ("load1", "load5", "load15"),
    "mem": MEMORY_FIELDS,
    "vm": VM_FIELDS,
    "psi": ("some_avg10", "some_total_us", "full_avg10", "full_total_us"),
    "disk": DISK_FIELDS,
    "cgroup_cpu": ("quota_us", "period_us", "nr_periods", "nr_throttled", "throttled_us"),
    "cgroup_memory": ("limit_bytes", "usage_bytes"),
    "process": ("pid", "utime", "stime"),
    "thread": ("run_ns", "wait_ns"),
    "tree": ("pid", "utime", "stime"),
    "backends": ("count", "run_ns", "wait_ns"),
}
GRACE_S = 4
NO_MEMORY_LIMIT = 1 << 60
"""cgroup v1 says "no limit" with the largest multiple of a page below 2**63."""
CHUNK_BYTES = 65536
# The title of a process that serves a client ends in the client's address; before that it has its postmaster's title.
# Source: PostgreSQL 18 src/backend/tcop/backend_startup.c, BackendInitialize(); 15: postmaster.c.
BACKEND_TITLE = re.compile(rb"postgres: (?!.*walsender ).*(\[local\]|\(\d+\))", re.DOTALL)
TITLE_START = b"postgres: "


class PseudoFile:
    """A file of /proc or /sys that stays open; `read` returns None for good once the file has vanished.

    It raises OSError if this process may open no more files.
    """

    def __init__(self, path: str) -> None:
        self.error = ""
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            if is_out_of_files(exc):
                raise
            self.error = str(exc)

    def read(self) -> bytes | None:
        """Read the whole file as it is now; None if it is gone."""
        if self._fd < 0:
            return None
        try:
            # seq_file returns about a page at a time, so this reads until nothing comes.
            data = chunk = os.pread(self._fd, CHUNK_BYTES, 0)
            while chunk:
                chunk = os.pread(self._fd, CHUNK_BYTES, len(data))
                data += chunk
        except OSError as exc:
            self.error = str(exc)
            self.close()
            return None
        return data

    def close(self) -> None:
        """Close the descriptor; `read` returns None from then on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def array(values: list[bytes]) -> bytes:
    """Format a JSON array of numbers that are already text."""
    return b"[" + b",".join(values) + b"]"


class Stat:
    """The source /proc/stat: time by kind for each CPU, context switches and the run queue."""

    def __init__(self) -> None:
        self.files = {"cpu": PseudoFile("/proc/stat"), "load": PseudoFile("/proc/loadavg")}

    def read(self, out: dict[bytes, bytes]) -> None:
        """Add each source's values as JSON text under its key; what cannot be read is left out."""
        data = self.files["cpu"].read()
        if data is not None:
            for line in data[: data.find(b"\nintr")].split(b"\n")[1:]:
                name, *values = line.split()
                out[name] = array(values)
            out[b"sched"] = array([number_after(data, b"\n" + field.encode() + b" ") for field in SCHED_FIELDS])
        load = self.files["load"].read()
        if load is not None:
            out[b"load"] = array(load.split()[:3])


class NamedLines:
    """A file of `name value` lines, of which some are wanted; their places are looked up once."""

    def __init__(self, key: str, path: str, fields: tuple[str, ...], name_end: bytes) -> None:
        self.files = {key: PseudoFile(path)}
        self._key = key.encode()
        self._names = [field.encode() + name_end for field in fields]
        self._places: list[int] = []
        self._token_count = -1

    def read(self, out: dict[bytes, bytes]) -> None:
        """Add each source's values as JSON text under its key; what cannot be read is left out."""
        data = self.files[self._key.decode()].read()
        if data is None:
            return
        tokens = data.split()
        if len(tokens) != self._token_count:
            self._token_count = len(tokens)
            self._places = [tokens.index(name) + 1 if name in tokens else -1 for name in self._names]
        out[self._key] = array([tokens[place] if place > 0 else b"null" for place in self._places])


class Pressure:
    """The source /proc/pressure: how long tasks waited for CPU, memory and I/O."""

    def __init__(self) -> None:
        self.files = {f"psi.{kind}": PseudoFile(f"/proc/pressure/{kind}") for kind in ("cpu", "memory", "io")}

    def read(self, out: dict[bytes, bytes]) -> None:
        """Add each source's values as JSON text under its key; what cannot be read is left out."""
        for key, file in self.files.items():
            data = file.read()
            if data is not None:
                values = [b"null"] * 4
                for line in data.splitlines():
                    kind, avg10, _, _, total = line.split()
                    place = 0 if kind == b"some" else 2
                    values[place : place + 2] = avg10[6:], total[6:]
                out[key.encode()] = array(values)


class Disks:
    """The source /proc/diskstats: whole block devices that ever did any I/O."""

    def __init__(self) -> None:
        self.files = {"disk": PseudoFile("/proc/diskstats")}
        self._is_whole: dict[bytes, bool] = {}

    def read(self, out: dict[bytes, bytes]) -> None:
        """Add each source's values as JSON text under its key; what cannot be read is left out."""
        for line in (self.files["disk"].read() or b"").splitlines():
            _, _, name, *values = line.split()
            if name not in self._is_whole:
                self._is_whole[name] = os.path.exists(b"/sys/block/" + name.replace(b"/", b"!"))  # noqa: PTH110
            if self._is_whole[name] and (values[0] != b"0" or values[4] != b"0"):
                out[b"disk." + name] = array(values)


class Cgroup:
    """The limits and throttling of this program's own control group, version 1 or 2.

    A limit holds for all groups below it, so of those on the way up the group with the tightest limit is read.
    """

    def __init__(self, folders: dict[str, list[str]]) -> None:
        self.files: dict[str, PseudoFile] = {}
        self._open("cgroup_cpu", folders, {"": "cpu.max", "cpu": "cpu.cfs_quota_us"})
        self._open("cgroup_memory", folders, {"": "memory.max", "memory": "memory.limit_in_bytes"})

    def _open(self, key: str, folders: dict[str, list[str]], limit_files: dict[str, str]) -> None:
        for controller, limit in limit_files.items():
            levels = [path for path in folders.get(controller, []) if os.path.exists(f"{path}/{limit}")]  # noqa: PTH110
            if not levels:
                continue
            folder = min(levels, key=lambda path: read_limit(path, limit))
            others = {
                "cpu.max": ("cpu.stat",),
                "cpu.cfs_quota_us": ("cpu.cfs_period_us", "cpu.stat"),
                "memory.max": ("memory.current",),
                "memory.limit_in_bytes": ("memory.usage_in_bytes",),
            }[limit]
            for name in (limit, *others):
                self.files[f"{key}.{name}"] = PseudoFile(f"{folder}/{name}")
            return

    def _text(self, name: str) -> bytes | None:
        file = self.files.get(name)
        return None if file is None else file.read()

    def read(self, out: dict[bytes, bytes]) -> None:
        """Add each source's values as JSON text under its key; what cannot be read is left out."""
        stat = self._text("cgroup_cpu.cpu.stat")
        if stat is not None:
            both = self._text("cgroup_cpu.cpu.max")
            if both is None:
                quota, period = self._text("cgroup_cpu.cpu.cfs_quota_us"), self._text("cgroup_cpu.cpu.cfs_period_us")
                throttled_ns = number_after(stat, b"throttled_time ")
                throttled = throttled_ns if throttled_ns == b"null" else str(int(throttled_ns) / 1000).encode()
            else:
                quota, period = both.split()
                throttled = number_after(stat, b"throttled_usec ")
            counts = [number_after(stat, name) for name in (b"nr_periods ", b"nr_throttled ")]
            out[b"cgroup_cpu"] = array([limit_number(quota), limit_number(period), *counts, throttled])
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            used = self._text(f"cgroup_memory.{usage}")
            if used is not None:
                out[b"cgroup_memory"] = array([limit_number(self._text(f"cgroup_memory.{limit}")), used.strip()])


class SampledProcess:
    """The CPU time of some processes as one, and of each of their threads in nanoseconds, and each thread's wait for a CPU."""

    def __init__(self, label: str, *pids: int) -> None:
        self.label = label
        self._pids = pids
        self._stats = [PseudoFile(f"/proc/{pid}/stat") for pid in pids]
        self._threads: dict[bytes, PseudoFile] = {}
        self._thread_counts: dict[int, bytes] = {}

    def read(self, out: dict[bytes, bytes]) -> bool:
        """Add what is known; False when one of the processes is gone."""
        user = system = 0
        for pid, stat in zip(self._pids, self._stats):  # noqa: B905 - strict came with Python 3.10
            data = stat.read()
            if data is None:
                return False
            values = data[data.rfind(b")") + 2 :].split()
            user, system = user + int(values[11]), system + int(values[12])
            if values[17] != self._thread_counts.get(pid):
                self._find_threads(pid, values[17])
        out[b"process." + self.label.encode()] = array([b"%d" % self._pids[0], b"%d" % user, b"%d" % system])
        for tid, file in self._threads.items():
            run = file.read()
            if run is not None:
                out[b"thread." + self.label.encode() + b"." + tid] = array(run.split()[:2])
        return True

    def _find_threads(self, pid: int, thread_count: bytes) -> None:
        try:
            names = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        except OSError as exc:
            if is_out_of_files(exc):
                raise
            return
        self._thread_counts[pid] = thread_count
        for name in names:
            if name.encode() not in self._threads:
                self._threads[name.encode()] = PseudoFile(f"/proc/{pid}/task/{name}/schedstat")

    def close(self) -> None:
        """Close all its files."""
        for file in (*self._stats, *self._threads.values()):
            file.close()


class ProcessTree:
    """The CPU time of some processes and all their descendants as one, including children that ended and were waited for.

    A process that ends during the reading may be missing once, so the sum can briefly go back.
    """

    def __init__(self, label: str, *pids: int) -> None:
        self._key = b"tree." + label.encode()
        self._roots = [str(pid).encode() for pid in pids]
        self._stats: dict[bytes, PseudoFile] = {}
        self._children: dict[bytes, PseudoFile] = {}

    def read(self, out: dict[bytes, bytes]) -> bool:
        """Add what is known; False when one of the processes is gone, or its children cannot be told."""
        pids = list(self._roots)
        for place, pid in enumerate(pids):
            children = self._list_children(pid)
            if place < len(self._roots) and (children is None or self._spent(pid) is None):
                return False
            # The loop goes on with the children, and ends with those that have none.
            pids += children or ()
        user = system = 0
        for spent in filter(None, map(self._spent, pids)):
            user, system = user + spent[0], system + spent[1]
        self._forget(set(pids))
        out[self._key] = array([self._roots[0], b"%d" % user, b"%d" % system])
        return True

    def _spent(self, pid: bytes) -> tuple[int, int] | None:
        if pid not in self._stats:
            self._stats[pid] = PseudoFile(f"/proc/{pid.decode()}/stat")
        data = self._stats[pid].read()
        if data is None:
            return None
        values = data[data.rfind(b")") + 2 :].split()
        return int(values[11]) + int(values[13]), int(values[12]) + int(values[14])

    def _list_children(self, pid: bytes) -> list[bytes] | None:
        # Source: proc_tid_children(5); needs CONFIG_PROC_CHILDREN, which distributions set. Only children of the first
        # thread are read: nothing in this tree starts programs from another one, except `\shell` of pgbench's other threads.
        if pid not in self._children:
            self._children[pid] = PseudoFile(f"/proc/{pid.decode()}/task/{pid.decode()}/children")
        data = self._children[pid].read()
        return None if data is None else data.split()

    def close(self) -> None:
        """Close all its files."""
        self._forget(set())

    def _forget(self, living: set[bytes]) -> None:
        for files in (self._stats, self._children):
            for pid in files.keys() - living:
                files.pop(pid).close()


class Backends:
    """The time for which the backends of the clients of some servers had a CPU, and for which they were ready and had none.

    Ended backends count with their last reading, so that sums never go back. Where the kernel does not count, both
    times are 0.
    """

    def __init__(self, label: str, *postmaster_pids: int) -> None:
        self._key = b"backends." + label.encode()
        self._postmasters = [
            (PseudoFile(f"/proc/{pid}/stat"), PseudoFile(f"/proc/{pid}/task/{pid}/children")) for pid in postmaster_pids
        ]
        self._others: set[bytes] = set()
        self._files: dict[bytes, PseudoFile] = {}
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._ended_ns = (0, 0)

    def read(self, out: dict[bytes, bytes]) -> bool:
        """Add what is known; False when a server is gone, or its children cannot be told."""
        # The list of children of an ended server is empty, which is no error.
        lists = [None if stat.read() is None else children.read() for stat, children in self._postmasters]
        pids = {pid for data in lists if data is not None for pid in data.split()}
        # The kernel may leave out a child while another one ends. Source: proc_tid_children(5).
        for pid in [pid for pid in self._seen.keys() - pids if self._files[pid].read() is None]:
            self._ended_ns = add(self._ended_ns, self._seen.pop(pid))
            self._files.pop(pid).close()
        if None in lists:
            return False
        self._others &= pids
        for pid in pids - self._files.keys() - self._others:
            self._tell(pid)
        for pid, file in self._files.items():
            run, wait, *_ = (file.read() or b"").split() or (None, None)
            if run is not None and wait is not None:
                self._seen[pid] = int(run), int(wait)
        run_ns, wait_ns = self._ended_ns
        for each in self._seen.values():
            run_ns, wait_ns = run_ns + each[0], wait_ns + each[1]
        out[self._key] = b"[%d,%d,%d]" % (len(self._seen), run_ns, wait_ns)
        return True

    def close(self) -> None:
        """Close all its files."""
        for file in (*(file for pair in self._postmasters for file in pair), *self._files.values()):
            file.close()

    def _tell(self, pid: bytes) -> None:
        """Classify a child of the postmaster as a client's backend or not; one without a title is classified later."""
        title = read_text(f"/proc/{pid.decode()}/cmdline").encode()
        if BACKEND_TITLE.match(title):
            self._files[pid] = PseudoFile(f"/proc/{pid.decode()}/schedstat")
            self._seen[pid] = 0, 0
        elif title.startswith(TITLE_START):
            self._others.add(pid)


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the sums of both parts."""
    return one[0] + other[0], one[1] + other[1]


class Sampler:
    """All sources, and the values last printed for each."""

    def __init__(self, pid: str = "self") -> None:
        self.sources = (
            Stat(),
            NamedLines("mem", "/proc/meminfo", MEMORY_FIELDS, b":"),
            NamedLines("vm", "/proc/vmstat", VM_FIELDS, b""),
            Pressure(),
            Disks(),
            Cgroup(cgroup_folders(read_text(f"/proc/{pid}/cgroup"), read_text("/proc/self/mountinfo"))),
        )
        self._processes: dict[str, SampledProcess | ProcessTree | Backends] = {}
        self.given_up: dict[str, str] = {}
        self._last: dict[bytes, bytes] = {}

    def follow(self, request: str) -> None:
        """Follow what `LABEL=PID,PID` names as one from the next sample on; `+=`: with descendants; `*=`: servers' backends."""
        label, _, pid = request.strip().partition("=")
        pids = pid.split(",")
        name = label.rstrip("+*")
        kinds: dict[str, type[SampledProcess | ProcessTree | Backends]] = {
            "": SampledProcess,
            "+": ProcessTree,
            "*": Backends,
        }
        follow = kinds.get(label[len(name) :])
        if follow is None or not name.isidentifier() or not all(map(str.isdigit, pids)):
            sys.stderr.write(f"not LABEL=PID: {request!r}\n")
            return
        try:
            self._processes[request.strip()] = follow(name, *map(int, pids))
        except OSError as exc:
            self.given_up[request.strip()] = str(exc)

    def absent(self) -> dict[str, str]:
        """Return the sources that cannot be read at all, with the reason."""
        self.line()
        self._last.clear()
        missing = {k: f.error for source in self.sources for k, f in source.files.items() if f.error}
        groups = dict.fromkeys(("cgroup_cpu", "cgroup_memory"), "no such controller is mounted here")
        found = {key.partition(".")[0] for key in self.sources[-1].files}
        return {**missing, **{key: reason for key, reason in groups.items() if key not in found}}

    def line(self) -> bytes:
        """Take one sample and return it as a JSON line."""
        now: dict[bytes, bytes] = {}
        started = time.monotonic_ns()
        for source in self.sources:
            source.read(now)
        for request, process in list(self._processes.items()):
            try:
                is_there = process.read(now)
            except OSError as exc:
                is_there, self.given_up[request] = False, f"{exc.strerror}: {exc.filename}"
            if not is_there:
                self._processes.pop(request).close()
        last = self._last
        changed = [b'"%b":%b' % (key, value) for key, value in now.items() if last.get(key) != value]
        changed += [b'"%b":null' % key for key in last if key not in now]
        self._last = now
        head = b'{"t":%d.%09d,"cost_s":%.6f' % (*divmod(started, 1_000_000_000), time.process_time())
        return b",".join([head, *changed]) + b"}\n"


def is_out_of_files(error: OSError) -> bool:
    """Return whether this process, or the machine, has as many open files as it may have."""
    return error.errno in {errno.EMFILE, errno.ENFILE}


def number_after(data: bytes, name: bytes) -> bytes:
    """Return the digits that follow `name` up to the end of its line, or null."""
    at = data.find(name)
    if at < 0:
        return b"null"
    start = at + len(name)
    end = data.find(b"\n", start)
    return data[start : end if end >= 0 else len(data)].strip()


def read_limit(folder: str, name: str) -> float:
    """Return the CPUs or bytes that a limit file of a control group allows; infinite without a limit."""
    words = read_text(f"{folder}/{name}").split()
    number = limit_number(words[0].encode() if words else None)
    if number == b"null":
        return math.inf
    period = words[1] if name == "cpu.max" else "1"
    if name == "cpu.cfs_quota_us":
        period = read_text(f"{folder}/cpu.cfs_period_us") or "100000"
    return int(number) / int(period) if int(period) else math.inf


def limit_number(text: bytes | None) -> bytes:
    """Return the limit in a file, or null for the ways to say that there is none."""
    word = (text or b"max").strip()
    return b"null" if word in {b"max", b"-1"} or int(word) >= NO_MEMORY_LIMIT else word


def cgroup_folders(groups: str, mounts: str) -> dict[str, list[str]]:
    """Return, by version 1 controller and "" for version 2, the folders from a process's own group up to the mount.

    `groups` and `mounts` are the texts of its /proc files cgroup and mountinfo.
    """
    found: dict[str, list[str]] = {}
    for line in filter(None, mounts.split("\n")):
        before, _, after = line.partition(" - ")
        root, mount = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        for group in groups.splitlines():
            _, names, path = group.split(":", 2)
            controllers = set(names.split(",")) if names else set()
            if kind != ("cgroup" if names else "cgroup2") or not controllers <= set(options.split(",")):
                continue
            inside = path[len(root.rstrip("/")) :] if path.startswith(root) else "/"
            folders = [mount + inside.rstrip("/")]
            while len(folders[-1]) > len(mount):
                folders.append(os.path.dirname(folders[-1]))  # noqa: PTH120
            for name in names.split(","):
                found.setdefault(name, folders)
    return found


def read_text(path: str) -> str:
    """Read the whole text of a small file; empty if there is none."""
    file = PseudoFile(path)
    try:
        return (file.read() or b"").decode(errors="replace")
    finally:
        file.close()


def write(data: bytes) -> None:
    """Write all bytes at once, unbuffered."""
    while data:
        data = data[os.write(1, data) :]


def header(sampler: Sampler, interval_s: float, pid: int = 0) -> bytes:
    """Return the first line."""
    value = {
        "format": FORMAT_VERSION,
        "kind": "os",
        "wall_s": time.time(),
        "monotonic_s": time.monotonic(),
        "interval_s": interval_s,
        "clk_tck": os.sysconf("SC_CLK_TCK"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "cpus": sorted(os.sched_getaffinity(pid)),
        "fields": FIELDS,
        "absent": sampler.absent(),
    }
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def await_word(silence_s: int) -> None:
    """Let the kernel end this program if no word comes for so long; 0: never."""
    signal.signal(signal.SIGALRM, give_grace)
    signal.alarm(silence_s)


def give_grace(*_: object) -> None:
    """End at the alarm; if words wait, this program was halted and has not read them: then it has some seconds for that.

    Also a write that hangs is left for this handler, so that the second alarm ends the program in any case.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if not select.select([0], [], [], 0)[0]:
        os.kill(os.getpid(), signal.SIGALRM)
    signal.alarm(GRACE_S)


def watch(sampler: Sampler, interval_s: float, silence_s: int = 0) -> str:
    """Print a line each interval until told to stop; return the reason. The kernel ends what hears nothing for too long."""
    wake, signalled = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    parent = os.getppid()
    due_s = time.monotonic()
    pending = b""
    while os.getppid() == parent:
        ready, _, _ = select.select([0, wake], [], [], max(0.0, due_s - time.monotonic()))
        asked = os.read(0, 4096) if 0 in ready else b""
        told = [number for number in (os.read(wake, 64) if wake in ready else b"") if number != signal.SIGALRM]
        if told or (0 in ready and not asked):
            # The last sample is left out if its interval would be too short to give rates.
            if due_s - time.monotonic() < interval_s / 2:
                write(sampler.line())
            return f"signal {told[0]}" if told else "stdin closed"
        if asked:
            await_word(silence_s)
            *requests, pending = (pending + asked).split(b"\n")
            for request in requests:
                if request.startswith(b"clock "):
                    os.write(2, b"%b %d\n" % (request, time.monotonic_ns()))
                else:
                    sampler.follow(request.decode(errors="replace"))
        elif time.monotonic() >= due_s:
            write(sampler.line())
            due_s += interval_s * max(1, -(-(time.monotonic() - due_s) // interval_s))
    return "parent gone"


def main() -> int:
    """Sample to the end at the interval of the command line, and print the reason for ending."""
    interval_s = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    silence_s = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    pid = sys.argv[3] if len(sys.argv) > 3 else "self"
    # Each backend takes up to three files, and the usual soft limit is 1024.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    try:
        sampler = Sampler(pid)
        write(header(sampler, interval_s, 0 if pid == "self" else int(pid)))
        sampler.follow(f"sampler_os={os.getpid()}")
        reason = watch(sampler, interval_s, silence_s)
        end = {"t": time.monotonic(), "cost_s": time.process_time(), "end": reason, "given_up": sampler.given_up}
        write(json.dumps(end).encode() + b"\n")
    except OSError as exc:
        sys.stderr.write(f"the OS sampler cannot go on: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
