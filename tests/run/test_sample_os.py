from __future__ import annotations

import ast
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgdyno.run.host.process import start as start_process
from pgdyno.run.sample import os_sampler as sample_os
from tests.run.sampler_lines import read_lines, read_rest, read_until
from tests.waiting import wait_until

PROGRAM = [sys.executable, "-S", "-I", sample_os.__file__]
BUSY = [sys.executable, "-S", "-c", "while True: pass"]


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    # One that outlived a killed test worker would burn a CPU for ever.
    process = start_process(BUSY)
    yield process
    process.kill()
    process.wait()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    lines, said = read_rest(process)
    assert said == ""
    return lines


def proc_stat() -> dict[str, list[int]]:
    lines = Path("/proc/stat").read_text().splitlines()
    return {name: [int(v) for v in values] for name, *values in map(str.split, lines) if name[3:].isdigit()}


def test_it_says_what_the_kernel_says() -> None:
    before = proc_stat()
    process = start("0.2")
    header, first = read_lines(process, 2)
    after = proc_stat()
    last = finish(process)[-1]
    cpus = [name for name in first if name.startswith("cpu")]
    assert cpus == list(before)
    for cpu in cpus:
        kinds = list(zip(header["fields"]["cpu"], before[cpu], first[cpu], after[cpu], strict=True))
        assert all(low <= seen <= high for kind, low, seen, high in kinds if kind not in {"idle", "iowait"})
    memory = dict(zip(header["fields"]["mem"], first["mem"], strict=True))
    total = next(
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    assert memory["MemTotal"] == int(total)
    assert 0 <= memory["MemFree"] <= memory["MemTotal"]
    assert abs(header["wall_s"] - header["monotonic_s"] - (time.time() - time.monotonic())) < 1
    assert header["monotonic_s"] <= first["t"] <= time.monotonic()
    assert header["cpus"] == sorted(os.sched_getaffinity(0))
    assert last["end"] == "stdin closed"


def test_what_does_not_change_is_left_out_and_what_does_keeps_growing() -> None:
    process = start("0.05")
    _, first, *later = read_lines(process, 12)
    finish(process)
    assert {"mem", "vm", "sched", "load"} <= set(first)
    for name in set().union(first, *later):
        said = [line[name] for line in (first, *later) if name in line]
        assert all(a != b for a, b in itertools.pairwise(said)), name
    # The kernel reckons it anew every five seconds.
    assert sum("load" in line for line in later) < len(later)
    switches = [line["sched"][0] for line in (first, *later) if "sched" in line]
    assert switches == sorted(switches)
    times = [line["t"] for line in (first, *later)]
    assert times == sorted(times)
    # A late sample moves none that follows: only the first's lateness, and a part of an interval, can be missing.
    assert times[-1] - times[0] > 0.05 * (len(later) - 2)


def used_disks() -> dict[str, int]:
    """Reads so far of each whole device that has done anything."""
    rows = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
    whole = {path.name for path in Path("/sys/block").iterdir()}
    return {row[2]: int(row[3]) for row in rows if row[2] in whole and (int(row[3]) or int(row[7]))}


def test_whole_devices_are_read_and_partitions_are_not() -> None:
    for _ in range(20):
        before = used_disks()
        process = start()
        header, first = read_lines(process, 2)
        finish(process)
        after = used_disks()
        disks = {name.removeprefix("disk."): values for name, values in first.items() if name.startswith("disk.")}
        # Others may use one for the first time meanwhile, and make one and remove it again.
        if set(before) <= set(disks) <= set(after):
            break
    assert set(before) <= set(disks) <= set(after)
    for name, values in disks.items():
        assert len(values) <= len(header["fields"]["disk"])
        assert before.get(name, 0) <= values[0] <= after[name]


def test_a_process_named_on_stdin_is_followed_thread_by_thread(busy: subprocess.Popen[bytes]) -> None:
    process = start("0.1")
    assert process.stdin is not None
    read_lines(process, 2)
    process.stdin.write(f"load={busy.pid}\n".encode())
    process.stdin.flush()
    key = f"thread.load.{busy.pid}"
    lines = read_until(process, lambda line: line.get(key))
    lines += read_lines(process, 6)
    busy.kill()
    busy.wait()
    lines += read_until(process, lambda line: key in line and line[key] is None)
    lines += read_lines(process, 2)
    finish(process)
    seen = [(line["t"], line[key][0]) for line in lines if line.get(key)]
    (t0, ns0), (t1, ns1) = seen[0], seen[-1]
    # It burns a CPU, or its share of one on a busy machine.
    assert 0.001 < (ns1 - ns0) / 1e9 / (t1 - t0) < 2
    assert next(line["process.load"][0] for line in lines if line.get("process.load")) == busy.pid
    # Gone is null, once.
    assert [line[key] for line in lines if key in line][-1] is None
    assert sum(line.get(key, 0) is None for line in lines) == 1


def test_a_server_without_clients_has_no_backends_and_one_that_ended_none_at_all(busy: subprocess.Popen[bytes]) -> None:
    process = start("0.05")
    assert process.stdin is not None
    process.stdin.write(f"server*={busy.pid}\n".encode())
    process.stdin.flush()
    header, *lines = read_until(process, lambda line: "backends.server" in line)
    assert header["fields"]["backends"] == ["count", "run_ns", "wait_ns"]
    assert lines[-1]["backends.server"] == [0, 0, 0]
    busy.kill()
    busy.wait()
    read_until(process, lambda line: line.get("backends.server", 0) is None)
    finish(process)


@pytest.mark.parametrize(
    ("title", "is_client"),
    [
        (b"postgres: postgres bench [local] UPDATE\0", True),
        (b"postgres: main: app shop 10.0.0.7(51234) idle in transaction\0", True),
        (b"postgres: app shop ::1(51234) SELECT\0", True),
        (b"postgres: walsender repl [local] streaming 0/3000060\0", False),
        (b"postgres: checkpointer \0", False),
        (b"postgres: io worker 0\0", False),
        (b"postgres: parallel worker for PID 4711 \0", False),
        (b"/usr/lib/postgresql/18/bin/postgres\0-D\0/data\0", False),
    ],
)
def test_a_backend_is_told_by_its_title(title: bytes, is_client: bool) -> None:
    assert bool(sample_os.BACKEND_TITLE.match(title)) is is_client


def test_a_backend_that_the_list_leaves_out_is_not_counted_twice() -> None:
    argv = ["postgres: app shop [local] idle", "-c", "echo ready; read -r word"]
    with subprocess.Popen(argv, executable="/bin/bash", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as backend:
        # It has its title only once it is its own program.
        assert backend.stdout is not None
        assert backend.stdout.readline() == b"ready\n"
        backends, all_children = sample_os.Backends("server", os.getpid()), f"{backend.pid} ".encode()
        ((stat, children),) = backends._postmasters
        children.close()

        def read(listed: bytes) -> list[int]:
            backends._postmasters = [(stat, SimpleNamespace(read=lambda: listed))]  # type: ignore[list-item]
            out: dict[bytes, bytes] = {}
            assert backends.read(out)
            return json.loads(out[b"backends.server"])  # type: ignore[no-any-return]

        before, without, after = map(read, (all_children, b"", all_children))
        assert before[0] == without[0] == after[0] == 1
        backend.communicate(b"\n")
        ended = read(b"")
        assert ended[0] == 0
        assert before[1] <= without[1] <= after[1] == ended[1]
        stat.close()


def test_a_sample_in_which_nothing_has_changed_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on kernels whose counters stand still, such as gVisor's."""
    sampler = sample_os.Sampler()
    monkeypatch.setattr(sampler, "sources", ())
    sampler._last.clear()
    assert json.loads(sampler.line()).keys() == {"t", "cost_s"}


def test_a_request_it_does_not_understand_is_answered_and_survived() -> None:
    process = start("0.05")
    assert process.stdin is not None
    process.stdin.write(b"load=me\n")
    process.stdin.flush()
    read_lines(process, 4)
    assert read_rest(process)[1] == "not LABEL=PID: 'load=me'\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_a_last_line(number: signal.Signals) -> None:
    process = start("5")
    read_lines(process, 2)
    process.send_signal(number)
    assert process.wait(timeout=600) == 0
    assert read_rest(process)[0][-1]["end"] == f"signal {number.value}"


def test_it_ends_when_its_parent_dies(tmp_path: Path) -> None:
    output = tmp_path / "out"
    # The shell holds the sampler's stdin open through a sleeping sibling, so that only the parent's death can end it.
    line = f"sleep 90 | {' '.join(PROGRAM)} 0.1 >{output} & until [ -s {output} ]; do sleep 0.05; done; kill -9 $$"
    subprocess.run(["sh", "-c", line], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until(lambda: b'"end"' in output.read_bytes())
    assert json.loads(output.read_bytes().splitlines()[-1])["end"] == "parent gone"


def test_a_full_disk_ends_it_with_one_line_and_no_traceback() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            PROGRAM, check=False, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=600
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["the OS sampler cannot go on: [Errno 28] No space left on device"]


def read_some() -> float:
    """The CPU time that reading four of its files takes here, each as it is."""
    began_s = time.thread_time()
    for name in ("stat", "meminfo", "vmstat", "diskstats"):
        Path("/proc", name).read_bytes()
    return time.thread_time() - began_s


def test_a_sample_costs_at_most_one_and_a_half_milliseconds_of_cpu() -> None:
    process = start("0.05")
    lines = read_lines(process, 32)[2:]
    finish(process)
    # The middle one of them: a busy machine makes some dearer, and a slow one all, also what it is compared with.
    cost_s = statistics.median(b["cost_s"] - a["cost_s"] for a, b in itertools.pairwise(lines))
    assert 0 < cost_s <= max(0.0015, 18 * statistics.median(read_some() for _ in range(30)))


def test_it_is_python_3_9_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(sample_os.__file__).read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    match_statements = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    assert not match_statements


# Captured from Debian 12 (systemd, version 2), a Docker container on version 1, and a host with both.
V2_MOUNT = "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
DOCKER_V1_MOUNT = "1053 1042 0:33 /docker/f1e2 /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:15 - cgroup cgroup rw,cpu,cpuacct"
# Its name holds characters at which Python ends a line or a word, and its source is empty.
ODD_MOUNT = "99 24 0:99 / /media/a\xa0b\x85c rw - tmpfs  rw"
V1_MOUNT = "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        (
            "0::/user.slice/session-1.scope",
            V2_MOUNT,
            {"": ["/sys/fs/cgroup/user.slice/session-1.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]},
        ),
        ("0::/", f"{ODD_MOUNT}\n{V2_MOUNT}\n", {"": ["/sys/fs/cgroup"]}),
        (
            "4:cpu,cpuacct:/docker/f1e2",
            DOCKER_V1_MOUNT,
            {name: ["/sys/fs/cgroup/cpu,cpuacct"] for name in ("cpu", "cpuacct")},
        ),
        (
            "9:name=systemd:/\n4:memory:/a/b\n0::/",
            V1_MOUNT,
            {"memory": [f"/sys/fs/cgroup/memory{p}" for p in ("/a/b", "/a", "")]},
        ),
        ("", "", {}),
    ],
)
def test_the_folders_of_its_own_control_group_are_found(
    groups: str, mounts: str, expected: dict[str, list[str]]
) -> None:
    assert sample_os.cgroup_folders(groups, mounts) == expected


def write_group(folder: Path, **files: str) -> str:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return str(folder)


def test_version_2_limits_are_read_from_the_group_that_has_them(tmp_path: Path) -> None:
    top = write_group(
        tmp_path / "a",
        cpu__max="150000 100000\n",
        cpu__stat="usage_usec 9\nnr_periods 20\nnr_throttled 7\nthrottled_usec 1234\n",
        memory__max="max\n",
        memory__current="4096\n",
    )
    own = write_group(
        tmp_path / "a" / "b",
        cpu__max="max 100000\n",
        cpu__stat="usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        memory__max="1073741824\n",
        memory__current="2048\n",
    )
    out: dict[bytes, bytes] = {}
    sample_os.Cgroup({"": [own, top]}).read(out)
    assert out == {b"cgroup_cpu": b"[150000,100000,20,7,1234]", b"cgroup_memory": b"[1073741824,2048]"}


def test_of_nested_limits_the_tightest_is_read(tmp_path: Path) -> None:
    idle, busy = (f"nr_periods 600\nnr_throttled {throttled}\nthrottled_usec 0\n" for throttled in (0, 550))
    top = write_group(
        tmp_path / "a",
        cpu__max="200000 100000\n",
        cpu__stat=busy,
        memory__max="2147483648\n",
        memory__current="4096\n",
    )
    own = write_group(
        tmp_path / "a" / "b",
        # More of a shorter period.
        cpu__max="150000 20000\n",
        cpu__stat=idle,
        memory__max="8589934592\n",
        memory__current="2048\n",
    )
    out: dict[bytes, bytes] = {}
    sample_os.Cgroup({"": [own, top]}).read(out)
    assert out == {b"cgroup_cpu": b"[200000,100000,600,550,0]", b"cgroup_memory": b"[2147483648,4096]"}


def test_of_nested_version_1_limits_the_tightest_is_read(tmp_path: Path) -> None:
    top, own = (
        write_group(
            folder,
            cpu__cfs_quota_us=f"{quota}\n",
            cpu__cfs_period_us="100000\n",
            cpu__stat=f"nr_periods 600\nnr_throttled {throttled}\nthrottled_time 5000\n",
        )
        for folder, quota, throttled in ((tmp_path / "a", 200_000, 550), (tmp_path / "a" / "b", 800_000, 0))
    )
    out: dict[bytes, bytes] = {}
    sample_os.Cgroup({"cpu": [own, top]}).read(out)
    assert out == {b"cgroup_cpu": b"[200000,100000,600,550,5.0]"}


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists(),
    reason="needs root and a version 1 cpu controller",
)
def test_version_1_throttling_of_a_real_group_is_seen() -> None:
    group = Path(f"/sys/fs/cgroup/cpu/pgdyno-test-{os.getpid()}")
    group.mkdir()
    try:
        # So little that both are held back however many others want the CPUs.
        (group / "cpu.cfs_quota_us").write_text("5000")
        (group / "cpu.cfs_period_us").write_text("100000")
        # The program ends with its input, and the busy process with the program.
        loop = f"setpriv --pdeathsig=KILL -- {' '.join(BUSY[:3])} 'while True: pass'"
        enter = f"echo $$ >{group}/cgroup.procs; {loop} & exec {' '.join(PROGRAM)} 0.2"
        process = subprocess.Popen(["sh", "-c", enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        _, first = read_lines(process, 2)
        later = read_until(process, lambda line: line.get("cgroup_cpu", [0] * 5)[4] > first["cgroup_cpu"][4])
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        process.communicate()
        assert first["cgroup_cpu"][:2] == [5000, 100000]
        assert later[-1]["cgroup_cpu"][3] > first["cgroup_cpu"][3]
    finally:
        # Who was killed leaves it when it gets a CPU, and the group's limit holds for that, too.
        (group / "cpu.cfs_quota_us").write_text("-1")
        assert wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


TREE = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.run([sys.executable, "-S", "-c", burn], check=True)
# A busy process four generations below this one; all are gone with the pipe.
busy = "import sys, threading\\nthreading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0))).start()\\nwhile True: pass"
program = busy
for _ in range(3):
    program = f"import subprocess, sys\\nsubprocess.run([sys.executable, '-S', '-c', {program!r}])"
subprocess.run([sys.executable, "-S", "-c", program], check=False)
"""


def test_a_tree_is_all_that_a_process_starts_also_what_has_ended() -> None:
    root = subprocess.Popen([sys.executable, "-S", "-c", TREE], stdin=subprocess.PIPE)
    process = start("0.1")
    assert process.stdin is not None
    try:
        process.stdin.write(f"all+={root.pid}\n".encode())
        process.stdin.flush()
        (header,) = read_lines(process, 1)
        assert header["fields"]["tree"] == ["pid", "utime", "stime"]
        ticks = os.sysconf("SC_CLK_TCK")
        # What has ended spent 0.3 s; the rest can only be of the last generation.
        wanted = 0.3 * ticks + 0.5 * ticks
        spent = 0
        deadline_s = time.monotonic() + 600
        while spent < wanted:
            assert time.monotonic() < deadline_s
            (line,) = read_lines(process, 1)
            if "tree.all" in line:
                pid, user, system = line["tree.all"]
                assert pid == root.pid
                spent = user + system
    finally:
        assert root.stdin is not None
        root.stdin.close()
        finish(process)
        root.wait(timeout=600)


def test_a_tree_that_is_gone_is_told() -> None:
    root = subprocess.Popen(["sleep", "1000"])
    process = start("0.1")
    assert process.stdin is not None
    process.stdin.write(f"all+={root.pid}\n".encode())
    process.stdin.flush()
    seen: list[object] = []
    while len(seen) < 1:
        seen += [line["tree.all"] for line in read_lines(process, 1) if "tree.all" in line]
    root.kill()
    root.wait()
    while seen[-1] is not None:
        seen += [line["tree.all"] for line in read_lines(process, 1) if "tree.all" in line]
    finish(process)
