"""Writes tests/data/disk/: what fio, pg_test_fsync and pg_test_timing print here.

Run: capture_disk.py FOLDER OUTPUT NAME=BINDIR..., where FOLDER lies on the disk and each BINDIR is a PostgreSQL's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.fio import FioReport, parse_fio
from pgdyno.run.device import fio as run_fio
from pgdyno.run.device.scratch import AS_STDIN, Scratch, open_scratch

FILE_BYTES = 64 * 2**20
JOBS = {
    "mixed": DiskJob(pattern=Pattern.MIXED, block_bytes=8192, depth=16, read_ratio=0.7, runtime_s=1.0),
    "wal": DiskJob(pattern=Pattern.WAL, block_bytes=8192, runtime_s=1.0),
    "killed": DiskJob(pattern=Pattern.RANDOM_READ, block_bytes=8192, depth=4, runtime_s=1.0),
}


def main(folder: Path, output: Path, bindirs: dict[str, Path]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with open_scratch(folder, FILE_BYTES) as scratch:
        capture_fio(scratch, output)
        for name, bindir in bindirs.items():
            for program, options in (("pg_test_fsync", ["-s1", "-f", AS_STDIN]), ("pg_test_timing", ["-d1"])):
                done = subprocess.run(
                    [bindir / program, *options], check=True, stdin=scratch.descriptor, capture_output=True
                )
                (output / f"{program}-{name}.txt").write_bytes(done.stdout)


def capture_fio(scratch: Scratch, output: Path) -> None:
    fio = run_fio.find_fio()
    run_fio.lay_out(fio, scratch, FILE_BYTES, seed=1, most_s=10.0, user=None)
    for name, job in JOBS.items():

        def keep(text: str, *, load_s: float | None = None, name: str = name) -> FioReport:
            (output / f"fio-{name}.json").write_text(text, encoding="utf-8")
            return parse_fio(text, load_s=load_s)

        run_fio.parse_fio = keep
        run_fio.run_job(fio, job, scratch, FILE_BYTES, seed=2, user=None)
    # What a kill leaves: whole reports at first, the last cut off wherever the pipe was.
    killed = output / "fio-killed.json"
    text = killed.read_text(encoding="utf-8")
    killed.write_text(text[: int(len(text) * 0.7)], encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), {n: Path(p) for n, _, p in (a.partition("=") for a in sys.argv[3:])})
