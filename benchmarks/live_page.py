"""What the live page costs the measurement that it shows: its share of the CPUs, the TPS ratio with it to without it, memory.

A bench of one long trial runs with `--live` while a reader follows the page's updates, as a browser does. At first the page is
left alone: its CPU seconds are the scheduler's, of its process alone, and its memory is read at the beginning and the end. Then
in one random slice of each pair it is stopped (SIGSTOP), in the other it runs; each slice's transactions are counted from
pgbench's own log, after a washout. The interval of the ratio is Student's over pairs. A browser's own cost is not in these
figures: it may run on another machine, through an ssh tunnel.

With --record nothing of this is done. A record as a default `bench` leaves it, 81 trials and a sweep over clients, which
`long_record.py` makes out of that short one, is opened again and again, each time by a new `pgdyno watch` and a new Chromium:
seconds from the start of the command to the page's address, from the request to the first paint and to the verdicts, as the
browser tells them, and the CPU seconds of the tab and of the page's process until then.

With --tab nothing of this is done either. A bench of one long trial at a gentle rate is followed by a real Chromium for that many
minutes. Every half minute, after a collection of garbage, the memory of the tab (private pages of its process), what its
scripts hold, its DOM nodes and the memory of the page's process are read. The growth is the mean of the last quarter over that of the second: in the first one the trial's charts
fill.

    python benchmarks/live_page.py [--minutes 5]
    python benchmarks/live_page.py --record RECORD
    python benchmarks/live_page.py --tab 60
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figures import say
from long_record import make_long_record
from observer import interval, log_ratios, machine_busy_s, process_cpu_s

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.report.browser import Browser

_SLICE_S, _WASHOUT_S = 2.0, 0.2
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+/[\w-]+/")
_OPENINGS = 12
_NOTE_VERDICTS = """new MutationObserver(() => {
  if (document.documentElement?.dataset.answers && !window.verdicts_ms) requestAnimationFrame((at) => { window.verdicts_ms ??= at; });
}).observe(document, { attributes: true, subtree: true })"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="with the page alone, and as many of slices, for each workload"
    )
    parser.add_argument("--record", type=Path, help="a short record that ended, to open a long one made of it")
    parser.add_argument("--tab", type=float, help="minutes to follow a bench in a real browser, for its memory")
    options = parser.parse_args()
    if options.tab is not None:
        with bench_folder() as root:
            follow_in_browser(options.tab * 60, root)
        return
    if options.record is not None:
        with bench_folder() as root:
            open_ended(make_long_record(options.record, root / "record").path)
        return
    for script in ("tpcb-like", "select-only"):
        with bench_folder() as root:
            measure(script, options.minutes * 60, root)


@contextlib.contextmanager
def bench_folder() -> Iterator[Path]:
    """Make a folder for a home and a record, and remove it."""
    root = Path(tempfile.mkdtemp(prefix="pgdyno-live-", dir="/var/tmp"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def start_bench(root: Path, script: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a bench of one trial with a live page."""
    argv = [sys.executable, "-m", "pgdyno", "bench", "--stock-only", "--rounds", "1", "--workload", script, "--no-disk"]
    argv += [
        "--warm-up",
        "5s",
        "--live",
        "--yes",
        "--home",
        str(root / "home"),
        "--out",
        str(root / "record"),
        *options,
    ]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def follow_in_browser(seconds: float, root: Path) -> None:
    """Follow a bench in a real browser, and print how the memory of the tab and of the page's process grow."""
    load = ("--scale", "10", "--clients", "4", "--rate", "100", "--duration", f"{seconds + 60:.0f}s")
    bench = start_bench(root, "tpcb-like", *load)
    assert bench.stderr is not None
    try:
        address = next(found[0].decode() for line in bench.stderr if (found := _ADDRESS.search(line)))
        threading.Thread(target=bench.stderr.read, daemon=True).start()
        page, samples = find_page(bench.pid), root / "record/trials/0001/os.jsonl"
        while not samples.exists() and bench.poll() is None:
            time.sleep(0.1)
        with Browser() as browser:
            browser.view()
            browser.call("Performance.enable")
            # Else the browser keeps all that the page was sent, up to 20 MB, for its developer tools, which no reader has open.
            browser.call("Network.disable")
            browser.call("Page.navigate", url=address)
            browser.wait_for("document.documentElement?.dataset.seconds !== undefined", bool)
            began_s, cpu_s = time.monotonic(), process_cpu_s(page)
            seen = [read_memory(browser, page) for _ in every(30.0, seconds)]
            share = (process_cpu_s(page) - cpu_s) / (time.monotonic() - began_s) / (os.cpu_count() or 1)
    finally:
        if bench.poll() is None:
            bench.send_signal(signal.SIGINT)
        bench.wait()
    say("live_page.followed_cpu_share", share, unit="ratio", n=1, target="<= 0.003")
    quarter = len(seen) // 4
    for name, values in zip(("tab", "tab_scripts", "server", "tab_nodes"), zip(*seen, strict=True), strict=True):
        begin, end = (statistics.fmean(values[quarter * at : quarter * (at + 1)]) for at in (1, 3))
        # Each checkpoint of a trial is marked in its charts, so that their nodes do grow.
        target = None if name == "tab_nodes" else "<= 1.05"
        say(f"live_page.{name}_growth", end / begin, unit="ratio", n=len(values), target=target)
        shown = [f"{value / 1e6:.2f} MB" if value > 1e5 else f"{value:.0f}" for value in values]
        print(f"  {name}: {' '.join(shown)}", flush=True)


def every(step_s: float, seconds: float) -> Iterator[None]:
    """Yield every so many seconds."""
    began_s = time.monotonic()
    for number in range(1, int(seconds // step_s) + 1):
        time.sleep(max(0.0, began_s + number * step_s - time.monotonic()))
        yield


def read_memory(browser: Browser, page: int) -> tuple[float, float, float, float]:
    """Return the memory of the tab, what its scripts hold, and the memory of the page's process, in bytes; and its DOM nodes."""
    browser.call("HeapProfiler.collectGarbage")
    seen = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
    held = max(map(private_bytes, browser.renderers()))
    return held, seen["JSHeapUsedSize"], resident_bytes(page), seen["Nodes"]


def private_bytes(pid: int) -> int:
    """Return the memory that a process has for itself."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def measure(script: str, seconds: float, root: Path) -> None:
    """Run a bench with a page that is stopped in random slices, and print what the page cost."""
    bench = start_bench(root, script, "--scale", "50", "--clients", "8", "--duration", f"{2 * seconds + 20:.0f}s")
    assert bench.stderr is not None
    try:
        address = next(found[0].decode() for line in bench.stderr if (found := _ADDRESS.search(line)))
        threading.Thread(target=bench.stderr.read, daemon=True).start()
        threading.Thread(target=follow, args=(address,), daemon=True).start()
        page = find_page(bench.pid)
        samples = root / "record/trials/0001/os.jsonl"
        while not samples.exists() and bench.poll() is None:
            time.sleep(0.1)
        time.sleep(5.0)
        begin_bytes, begin_s, busy_s = resident_bytes(page), process_cpu_s(page), machine_busy_s()
        time.sleep(seconds)
        cpu_s, busy_s, end_bytes = process_cpu_s(page) - begin_s, machine_busy_s() - busy_s, resident_bytes(page)
        slices = alternate(page, seconds)
        bench.wait()
    finally:
        if bench.poll() is None:
            bench.send_signal(signal.SIGINT)
            bench.wait()
    ratios = log_ratios(root / "record/trials/0001", slices)
    mean, low, high = map(float, np.exp(interval(ratios)))
    name = f"live_page.{script.replace('-', '_')}"
    target = "interval holds 1"
    say(
        f"{name}.tps_ratio",
        mean,
        low=low,
        high=high,
        unit="ratio",
        n=len(ratios),
        target=target,
        holds=low <= 1 <= high,
    )
    share = cpu_s / seconds / (os.cpu_count() or 1)
    say(f"{name}.cpu_share", share, unit="ratio", n=1, target="<= 0.003")
    print(f"  {cpu_s:.2f} CPU s of the page in {seconds:.0f} s; the machine spent {busy_s:.0f} CPU s", flush=True)
    say(f"{name}.memory_growth", end_bytes / begin_bytes, unit="ratio", n=1)


def alternate(page: int, seconds: float) -> list[tuple[float, float, bool]]:
    """Stop and thaw the page's process by turns; return the slices."""
    draw, slices = random.Random(1), []
    offset_s, ends_s = time.time() - time.monotonic(), time.monotonic() + seconds
    try:
        while time.monotonic() < ends_s:
            for is_on in draw.sample([True, False], k=2):
                os.kill(page, signal.SIGCONT if is_on else signal.SIGSTOP)
                now = time.monotonic()
                time.sleep(_SLICE_S)
                slices.append((now + _WASHOUT_S + offset_s, now + _SLICE_S + offset_s, is_on))
    finally:
        os.kill(page, signal.SIGCONT)
    return slices


def open_ended(record: Path) -> None:
    """Open an ended record again and again, and print how long its page takes."""
    seen = [open_once(record) for _ in range(_OPENINGS)]
    targets = {
        "address_s": None,
        "first_paint_s": "<= 1",
        "verdicts_s": "<= 2",
        "tab_cpu_s": None,
        "server_cpu_s": None,
    }
    for (name, target), values in zip(targets.items(), zip(*seen, strict=True), strict=True):
        mean, low, high = interval(values)
        say(f"live_page.opening.{name}", mean, low=low, high=high, unit="s", n=len(values), target=target)
        print(f"  {name}: {' '.join(f'{value:.2f}' for value in values)}", flush=True)
    print(f"  {len(list((record / 'trials').glob('[0-9]' * 4)))} trials", flush=True)


def open_once(record: Path) -> tuple[float, float, float, float, float]:
    """Return the seconds to the address, to the first paint and to the verdicts; CPU seconds of tab and server until then."""
    began_s = time.monotonic()
    watch = subprocess.Popen([sys.executable, "-m", "pgdyno", "watch", str(record)], stderr=subprocess.PIPE)
    assert watch.stderr is not None
    address = next(found[0].decode() for line in watch.stderr if (found := _ADDRESS.search(line)))
    address_s = time.monotonic() - began_s
    with Browser() as browser:
        browser.view()
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=_NOTE_VERDICTS)
        server_s, tabs_s = process_cpu_s(watch.pid), {pid: process_cpu_s(pid) for pid in browser.renderers()}
        browser.call("Page.navigate", url=address)
        verdicts_ms = browser.wait_for("window.verdicts_ms", bool)
        tab_cpu_s = sum(process_cpu_s(pid) - tabs_s.get(pid, 0.0) for pid in browser.renderers())
        server_cpu_s = process_cpu_s(watch.pid) - server_s
        paint_ms = browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    watch.kill()
    watch.wait()
    return address_s, paint_ms / 1000, verdicts_ms / 1000, tab_cpu_s, server_cpu_s


def follow(address: str) -> None:
    """Read the page's updates until it ends."""
    with urllib.request.urlopen(f"{address}events") as events:
        for _ in events:
            pass


def find_page(parent: int) -> int:
    """Return the process id of the page, a child of the bench."""
    while True:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(fields[1]) == parent and b"watch" in words:
                return int(entry.name)
        time.sleep(0.1)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
