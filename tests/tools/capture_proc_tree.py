"""Captures what the preflight reads on this machine, as a tree for `tests/data/proc-trees`.

    python -m tests.tools.capture_proc_tree > tests/data/proc-trees/captured-NAME.toml

Only files that the preflight opens are taken, twice, half a second apart. Of processes only the first two are: names of
what others run belong nowhere. Add `expect`, and @DATA@ and @WAL@ for the mount points that the tests stand in for.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pgdyno.run.preflight import PreflightSubject, read_preflight

_ROOMS = ("/proc/", "/sys/", "/etc/")
_KEPT_PROCESSES = frozenset({"1", "2", "self", "sys"})


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Print the tree."""
    opened: dict[str, None] = {}

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(_ROOMS):
            opened[arguments[0]] = None

    sys.addaudithook(note)
    here = Path("/var/tmp")
    read_preflight(PreflightSubject(data_dir=here, wal_dir=here))
    files = {path: text for path in opened if _is_kept(path) and (text := _read(path)) is not None}
    time.sleep(0.5)
    later = {path: text for path, before in files.items() if (text := _read(path)) is not None and text != before}
    links = {
        str(link): link.resolve() for link in Path("/sys/dev/block").iterdir() if "loop" not in str(link.resolve())
    }
    devices = {str(target): f"/sys/block/{target.name}" for target in links.values()}
    say("[links]")
    for link, target in links.items():
        say(f"{json.dumps(link[1:])} = {json.dumps(devices[str(target)][1:])}")
    for title, table in (("files", files), ("later", later)):
        say(f"\n[{title}]")
        for path, text in table.items():
            say(f"{json.dumps(path[1:])} = {json.dumps(text)}")


def _is_kept(path: str) -> bool:
    parts = path.split("/")
    return parts[1] != "proc" or not parts[2].isdigit() or parts[2] in _KEPT_PROCESSES


def _read(path: str) -> str | None:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    # The counts of interrupts are long, and nobody asks for them.
    return "\n".join(line for line in text.splitlines() if not line.startswith("intr"))


if __name__ == "__main__":
    main()
