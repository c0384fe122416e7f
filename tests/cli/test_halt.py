"""A halt of pgdyno with its server, as by `docker pause`: the trial goes on, and its stall is told as what it was."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import msgspec
import pytest

from pgdyno.analyse.episodes.halts import find_halts
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.host.freezer import Freezer
from tests.cli.program import GENTLE, Bench, some_bench, wait_until

pytestmark = pytest.mark.cluster
HALT_S = 6.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    with some_bench(is_empty=False) as made:
        yield made


def halt(bench: Bench, process: subprocess.Popen[str]) -> tuple[float, float]:
    """Halt the program with all its children in the middle of its load; return when all stood still, and until when."""
    progress = "pgdyno-records/*/trials/0001/pgbench.stderr"
    assert wait_until(lambda: any(b"progress: 3" in file.read_bytes() for file in bench.folder.glob(progress)))
    freezer = Freezer()
    try:
        freezer.freeze([process.pid])
        from_s = time.monotonic()
        time.sleep(HALT_S)
        return from_s, time.monotonic()
    finally:
        freezer.thaw()


def without_io(samples: OsSamples) -> OsSamples:
    """Other tests' waits for the disk take nothing from the halt then."""
    kept = [name for name in samples.frame.columns if not name.startswith(("psi.io/", "disk."))]
    return msgspec.structs.replace(samples, frame=samples.frame.select(kept))


def test_a_halt_of_the_whole_program_is_found_in_its_record(bench: Bench) -> None:
    words = ("--stock-only", "--workload", "tpcb-like", "--scale", "2", "--clients", "2", "--rounds", "1", *GENTLE)
    with bench.started("bench", *words, "--warm-up", "1s", "--duration", "20s") as process:
        from_s, to_s = halt(bench, process)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    store = open_record(bench.record)
    (trial,) = store.read_trials()
    data = read_trial_data(store.trial_dir(1), trial)
    assert data.os is not None
    (found,) = [
        one
        for one in find_halts(msgspec.structs.replace(data, os=without_io(data.os)))
        if one.from_s < to_s and one.to_s > from_s
    ]
    assert found.from_s <= from_s < to_s <= found.to_s
