"""Look at a machine: a stdlib-only program that is sent to it, reads files, and prints one JSON document.

It imports nothing of pgdyno and runs on Python 3.7 or later. The first line on stdin is the request: `files`, the paths to
read or patterns of them, and `session`, a session of the server that should run there, or null. It writes nothing, starts nothing,
and needs no privilege. Afterwards it answers `clock WORD` lines on stderr until stdin closes.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

GROUP_FILES = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.max", "memory.limit_in_bytes")
DISK_FILES = ("scheduler", "rotational", "read_ahead_kb", "write_cache")


def read_text(path: str) -> str | None:
    """Return a file's text; None if it cannot be read."""
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return None


def find_session(pid: int, where: str) -> int | None:
    """Return the process id that this machine gives to a session of a server: it has that pid in its own namespace.

    The title of a backend ends in its client's address. Source: PostgreSQL 18, src/backend/tcop/backend_startup.c.
    """
    for name in [str(pid), *os.listdir("/proc")]:  # noqa: PTH208
        title = read_text(f"/proc/{name}/cmdline") if name.isdigit() else None
        if title is None or not title.startswith("postgres: ") or where not in title:
            continue
        for line in (read_text(f"/proc/{name}/status") or "").splitlines():
            if line.startswith("NSpid:") and line.split()[-1] == str(pid):
                return int(name)
    return None


def find_parent(pid: int) -> int | None:
    """Return the parent's process id."""
    stat = read_text(f"/proc/{pid}/stat")
    return None if stat is None else int(stat[stat.rindex(")") + 2 :].split()[1])


def list_group_files(groups: str, mounts: str) -> list[str]:
    """Return the files of limits from a process's control groups up to their mounts."""
    found = []
    for line in mounts.split("\n"):
        if " - cgroup" not in line:
            continue
        mount = line.split(" ")[4]
        for group in groups.splitlines():
            folder = mount + group.split(":", 2)[2].rstrip("/")
            while len(folder) >= len(mount):
                found += [folder + "/" + name for name in GROUP_FILES]
                folder = folder.rpartition("/")[0]
    return found


def list_mounts(mounts: str) -> list[tuple[str, str, str]]:
    """Return where each file system is mounted, its `major:minor` and what is mounted, in the order of mounting.

    They are as run/host/tree.py reads them.
    """
    # The kernel writes blanks and the like in octal, and any other character of a name as it is.
    each = [
        [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word) for word in line.split(" ")]
        for line in mounts.split("\n")
        if line
    ]
    return [(words[4], words[2], words[words.index("-") + 2]) for words in each]


def find_device(source: str, sysfs: str) -> Path | None:
    """Return the folder of a device by its name in the mount table; None of a btrfs on several devices, as of no device.

    It is as run/host/tree.py and disks.py find it. Btrfs gives its mounts a number of no device.
    """
    if not source.startswith("/dev/"):
        return None
    titles = sorted(Path(sysfs, "block").glob("dm-*/dm/name"))
    names = [Path(source).resolve().name, Path(source).name]
    names += [path.parent.parent.name for path in titles if (read_text(str(path)) or "").strip() == names[1]]
    found = next((path for path in (Path(sysfs, "class/block", name) for name in names) if path.is_dir()), None)
    device = None if found is None else found.resolve()
    each = Path(sysfs, "fs/btrfs").glob("*/devices")
    is_one_of_many = device is not None and any(
        (members / device.name).exists() and len(list(members.iterdir())) > 1 for members in each
    )
    return None if is_one_of_many else device


def look_at_disk(folder: str, mounts: str, sysfs: str = "/sys") -> dict[str, Any]:
    """Return what is below a folder that this account may not enter: room, devices, and the device's files."""
    above = [one for one in list_mounts(mounts) if (folder + "/").startswith(one[0].rstrip("/") + "/")]
    if not above:
        return {}
    # Of several mounts on one folder, the last one hides the others.
    mount, numbers, source = max(reversed(above), key=lambda one: len(one[0]))
    room = None
    for path in (folder, mount):
        try:
            seen = os.statvfs(path)
            room = [seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize]
            break
        except OSError:
            continue
    numbered = Path(sysfs, "dev/block", numbers).resolve()
    device = numbered if numbered.is_dir() else find_device(source, sysfs)
    return {
        "room": room,
        "numbers": numbers,
        "device": None if device is None else str(device),
        "is_partition": device is not None and (device / "partition").exists(),
    }


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for."""
    session = request["session"]
    pid, postmaster = None, None
    if session is not None:
        pid = find_session(session["pid"], session["where"])
        postmaster = None if pid is None else find_parent(pid)
    of = "self" if postmaster is None else str(postmaster)
    groups, mounts = (read_text(f"/proc/{of}/{name}") or "" for name in ("cgroup", "mountinfo"))
    paths = [path for pattern in request["files"] for path in glob.glob(pattern)]  # noqa: PTH207
    own_mounts = read_text("/proc/self/mountinfo") or ""
    folder = None if session is None else session["data_directory"]
    disk = {} if folder is None else look_at_disk(folder, mounts)
    device = disk.get("device")
    if device is not None:
        whole = Path(device).parent if disk["is_partition"] else Path(device)
        paths += [f"/sys/block/{whole.name}/queue/{name}" for name in DISK_FILES]
    texts = {path: read_text(path) for path in (*paths, *list_group_files(groups, own_mounts))}
    return {
        "session_pid": pid,
        "postmaster_pid": postmaster,
        # The address from which ssh came here.
        "client_address": (os.environ.get("SSH_CONNECTION") or "").partition(" ")[0] or None,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_count": len(os.sched_getaffinity(postmaster or 0)),
        "load_average_1min": os.getloadavg()[0],
        "boot_id": (read_text("/proc/sys/kernel/random/boot_id") or "").strip(),
        # Path.readlink came with Python 3.9.
        "pid_namespace": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115
        "groups": groups,
        "mounts": own_mounts,
        "server_mounts": mounts,
        "texts": {path: text for path, text in texts.items() if text is not None},
        "disk": disk,
    }


def answer_clock() -> None:
    """Answer with CLOCK_MONOTONIC until stdin closes."""
    pending = b""
    while True:
        asked = os.read(0, 4096)
        if not asked:
            return
        signal.alarm(int(sys.argv[1]))
        *lines, pending = (pending + asked).split(b"\n")
        for line in lines:
            os.write(2, b"%b %d\n" % (line, time.monotonic_ns()))


def read_line() -> bytes:
    """Read a line and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def main() -> None:
    """Look once, print it, and answer."""
    data = json.dumps(look(json.loads(read_line()))).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]
    answer_clock()


if __name__ == "__main__":
    main()
