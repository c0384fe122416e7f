"""The program that keeps what is carried to a machine, run on this machine."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from pathlib import Path

import pytest

from pgdyno.run.over import far_carry


def list_packed(names: list[str], parcel: bytes) -> bytes:
    """Return what the other end says that has one of these folders to send."""
    words = [json.dumps(names).encode(), json.dumps({"take": names[0], "packages": None}).encode()]
    return b"%b\n%b\n%d\n%b0\n\n" % (*words, len(parcel), parcel)


def pack_file() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        entry = tarfile.TarInfo("module.py")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"1"))
    return file.getvalue()


def test_no_work_there_is_ended_for_want_of_a_word_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "pgdyno/carried"
    for name in ("unused", "mine"):
        (base / name).mkdir(parents=True)
    left_s: dict[str, float] = {}

    def watch(name: str) -> None:
        work = getattr(far_carry, name)

        def worked(*given: object) -> object:
            left_s[name] = max(left_s.get(name, 0.0), signal.getitimer(signal.ITIMER_REAL)[0])
            return work(*given)

        monkeypatch.setattr(far_carry, name, worked)

    for name in ("is_whole", "remove_unused", "count", "put_in_place"):
        watch(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, said = os.pipe()
    os.write(said, list_packed(["mine"], pack_file()))
    os.close(said)
    stdin = os.dup(0)
    umask = os.umask(0o022)
    try:
        os.dup2(asked, 0)
        far_carry.main()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
    finally:
        signal.alarm(0)
        os.dup2(stdin, 0)
        os.umask(umask)
        os.close(stdin)
        os.close(asked)
    machine, wanted, taken = map(json.loads, capfd.readouterr().out.splitlines())
    assert machine["is_cpython"]
    assert (wanted["missing"], taken) == (["mine"], {"taken": "mine"})
    assert (base / "mine/module.py").exists()
    assert [path.name for path in base.iterdir()] == ["mine"]
    assert left_s == dict.fromkeys(("is_whole", "remove_unused", "count", "put_in_place"), 0.0)
