from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.run.change.install_fio import install_fio
from pgdyno.run.device.fio import Fio, can_run, find_fio, lay_out, run_job
from pgdyno.run.device.scratch import open_scratch
from tests.loops import needs_fio

MIB = 2**20
READ = DiskJob(pattern=Pattern.RANDOM_READ, block_bytes=8192, depth=4, runtime_s=0.2)


def put_fio(folder: Path, version: str) -> None:
    program = folder / "fio"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)


@needs_fio
def test_the_fio_of_this_machine() -> None:
    fio = find_fio()
    assert fio.version.startswith("fio-3.")
    assert fio.is_known
    assert fio.queueing in {"libaio", "io_uring"}


def test_without_fio_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="fio is missing") as caught:
        find_fio()
    assert "apt-get install fio" in caught.value.hint
    with pytest.raises(HostError, match="no apt-get"):
        install_fio()


def test_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    put_fio(tmp_path, "fio-2.21")
    with pytest.raises(HostError, match="is too old") as caught:
        find_fio()
    assert caught.value.detail == "fio-2.21"
    put_fio(tmp_path, "fio-4.1")
    fio = find_fio()
    assert not fio.is_known
    assert fio.queueing is None


@needs_fio
def test_a_file_is_written_in_full_with_data_that_cannot_be_compressed(tmp_path: Path) -> None:
    with open_scratch(tmp_path, 16 * MIB) as scratch:
        assert lay_out(find_fio(), scratch, 16 * MIB, seed=1, most_s=600.0, user=None) == 16 * MIB
        path = Path(f"/proc/self/fd/{scratch.descriptor}")
        data = path.read_bytes()
    assert len(data) == 16 * MIB
    assert len(zlib.compress(data[: 4 * MIB], 1)) > 4 * MIB
    blocks = [data[place : place + 8192] for place in range(0, len(data), 8192)]
    assert len(set(blocks)) == len(blocks)


@needs_fio
@pytest.mark.parametrize("pattern", [Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ])
def test_each_seed_draws_other_places(tmp_path: Path, pattern: Pattern) -> None:
    fio, log = find_fio(), tmp_path / "places"
    logging = tmp_path / "fio"
    logging.write_text(f'#!/bin/sh\nexec {fio.program} "$@" --write_iolog={log}\n')
    logging.chmod(0o755)
    fio = msgspec.structs.replace(fio, program=str(logging))

    def places(seed: int) -> list[str]:
        found: list[str] = []
        # A busy disk reads fewer than 20 blocks in the first.
        for runtime_s in (0.2, 2.0, 20.0, 200.0):
            one = msgspec.structs.replace(READ, pattern=pattern, depth=1, runtime_s=runtime_s)
            log.unlink(missing_ok=True)
            with open_scratch(tmp_path, 16 * MIB) as scratch:
                run_job(fio, one, scratch, 16 * MIB, seed=seed, user=None)
            words = [line.split() for line in log.read_text().splitlines()]
            found = [line[-2] for line in words if "read" in line][:20]
            if len(found) == 20:
                break
        return found

    first = places(1)
    assert len(first) == 20
    assert places(1) == first
    assert len(set(places(2)) & set(first)) < 5


@needs_fio
def test_what_one_fio_cannot_do_is_known(tmp_path: Path) -> None:
    fio = find_fio()
    without = Fio(program=fio.program, version=fio.version, queueing=None)
    with open_scratch(tmp_path, MIB) as scratch:
        assert can_run(fio, READ, scratch)
        assert not can_run(without, READ, scratch)
        assert can_run(without, DiskJob(pattern=Pattern.WAL, block_bytes=8192, runtime_s=1.0), scratch)


@needs_fio
def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    with open_scratch(tmp_path, MIB) as scratch, pytest.raises(StepFailedError, match="fio failed") as caught:
        run_job(find_fio(), READ, scratch, 4096, seed=1, user=None)
    assert caught.value.detail
