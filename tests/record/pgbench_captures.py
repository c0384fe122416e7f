"""What real pgbench programs printed, as tests/tools/capture_pgbench.py wrote it down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "pgbench"
MAJORS = (15, 16, 18)


@dataclass(frozen=True)
class Capture:
    major: int
    name: str

    @property
    def path(self) -> Path:
        return DATA / str(self.major) / self.name

    @property
    def stdout(self) -> str:
        return (self.path / "pgbench.stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.path / "pgbench.stderr").read_bytes().decode()

    @property
    def exit_code(self) -> int:
        return json.loads((self.path / "pgbench.json").read_bytes())["exit_code"]

    @property
    def argv(self) -> list[str]:
        return json.loads((self.path / "pgbench.json").read_bytes())["argv"]

    def __str__(self) -> str:
        return f"{self.major}-{self.name}"


ALL = tuple(
    Capture(major, folder.name)
    for major in MAJORS
    for folder in sorted((DATA / str(major)).iterdir())
    if folder.is_dir()
)
INITS = tuple(capture for capture in ALL if capture.name.startswith("init"))
LOADS = tuple(capture for capture in ALL if not capture.name.startswith("init"))
