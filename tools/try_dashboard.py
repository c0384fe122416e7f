"""Ask a real Prometheus all that the dashboard in deploy/grafana asks, after a real comparison that it watched; needs Debian's prometheus.

Prometheus runs with deploy/grafana/prometheus.yml and asks a `pgdyno compare` of two values of synchronous_commit, which on disks
differ, so that a verdict is decided. Then each query of the dashboard's panels, annotations and variables is sent to it. One that
gets nothing is an error.

    python tools/try_dashboard.py [--minutes 3]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GRAFANA = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
_PORT = "9187"
_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


def list_queries() -> Iterator[str]:
    """Yield what the dashboard asks, with all records chosen."""
    dashboard = json.loads((GRAFANA / "pgdyno.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [note["expr"] for note in dashboard["annotations"]["list"]]
    asked += [one["definition"] for one in dashboard["templating"]["list"] if "definition" in one]
    return (one.replace("$record", ".+") for one in asked)


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Run Prometheus as the dashboard's folder sets it up; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    argv = ["prometheus", f"--config.file={GRAFANA}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus"]
    argv += [f"--web.listen-address={address}", "--log.level=error"]
    with subprocess.Popen(argv) as process:
        try:
            yield f"http://{address}/api/v1"
        finally:
            process.terminate()


def ask(api: str, query: str, since_s: float) -> list[Any]:
    """Return the series, or the values of a label, that answer a query of the time since then."""
    times = {"start": f"{since_s:.0f}", "end": f"{time.time():.0f}"}
    if found := _VALUES.fullmatch(query):
        asked = f"label/{found[2]}/values?{urllib.parse.urlencode({'match[]': found[1], **times})}"
    else:
        asked = f"query_range?{urllib.parse.urlencode({'query': query, 'step': '5', **times})}"
    with urllib.request.urlopen(f"{api}/{asked}") as answer:  # noqa: S310 - an address of this machine
        data = json.load(answer)["data"]
    series: list[Any] = data["result"] if isinstance(data, dict) else data
    return series


def main() -> int:
    """Watch a comparison, and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="of the comparison")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="pgdyno-dashboard-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        compare = [
            sys.executable,
            "-m",
            "pgdyno",
            "compare",
            "--workload",
            "tpcb-like",
            "--scale",
            "2",
            "--yes",
            "--no-disk",
        ]
        compare += ["--set", "synchronous_commit=on", "--set", "synchronous_commit=off", "--minutes", f"{minutes:g}"]
        compare += ["--home", f"{folder}/home", "--out", f"{folder}/record", "--metrics-port", _PORT]
        since_s = time.time()
        with prometheus(folder) as api:
            subprocess.run(compare, check=True, stdout=subprocess.DEVNULL)
            counts = {query: len(ask(api, query, since_s)) for query in list_queries()}
    for query, count in counts.items():
        sys.stdout.write(f"{count:3} {query}\n")
    return int(not all(counts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
