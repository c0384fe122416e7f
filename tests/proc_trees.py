"""Trees of /proc and /sys in `tests/data/proc-trees`, laid out on disk as a machine would show them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts, ServerSnapshot
from pgdyno.run.preflight import PreflightSubject, read_preflight

FOLDER = Path(__file__).parent / "data" / "proc-trees"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Files that differ from another tree's, and what must be found with them."""

    name: str
    files: dict[str, Any] = field(default_factory=dict)
    later: dict[str, Any] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    expect: dict[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    now: int = 1732150000
    source: str = ""


def read_scenarios() -> list[Scenario]:
    tables = tomllib.loads((FOLDER / "scenarios.toml").read_text(encoding="utf-8"))["scenario"]
    return [Scenario(**{**table, "says": tuple(table.get("says", ()))}) for table in tables]


def read_tree(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def look(
    folder: Path, scenario: Scenario, *, base: str = "quiet", server: ServerSnapshot | None = None
) -> tuple[HostFacts, PreflightFacts]:
    """Lay a scenario out over a tree and gather its facts. Disks are half full, whatever the real one is."""
    tree = read_tree(base)
    files = {**tree["files"], **scenario.files}
    links = {**tree.get("links", {}), **scenario.links}
    now, later = folder / "now", folder / "later"
    data, wal = folder / "data", folder / "wal"
    for place in (data, wal):
        place.mkdir(parents=True)
    _lay_out(now, files, links, data=data, wal=wal)
    _lay_out(later, {**files, **tree.get("later", {}), **scenario.later}, links, data=data, wal=wal)
    host, facts, _ = read_preflight(
        PreflightSubject(data_dir=data, wal_dir=wal, server=server),
        root=now,
        later=later,
        now=datetime.fromtimestamp(scenario.now, UTC),
    )
    disk = msgspec.structs.replace(host.data_disk, free_bytes=host.data_disk.size_bytes // 2)
    assert facts.wal is not None
    roomy = msgspec.structs.replace(facts.wal, free_bytes=facts.wal.size_bytes // 2)
    return (
        msgspec.structs.replace(host, data_disk=disk),
        msgspec.structs.replace(facts, wal=roomy, inodes_free_ratio=None),
    )


def _lay_out(root: Path, files: dict[str, Any], links: dict[str, str], *, data: Path, wal: Path) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else "\n".join(f"{key}: {value}" for key, value in content.items())
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("@DATA@", str(data)).replace("@WAL@", str(wal)), encoding="utf-8")
    for name, target in links.items():
        link = root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / target)
