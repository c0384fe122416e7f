"""Share what costs seconds to make between all tests and workers of a run: empty clusters and loaded templates."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_VARIABLE = "PGDYNO_TEST_SHARED"


def open_shared_folder() -> Callable[[], None]:
    """Make the folder of this run, or use that of the run that started this one; return what removes it."""
    if os.environ.get(_VARIABLE):
        return lambda: None
    # Beside the homes of tests, so that files can be linked.
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-test-shared-", dir="/var/tmp"))
    folder.chmod(0o755)
    os.environ[_VARIABLE] = str(folder)

    def remove() -> None:
        del os.environ[_VARIABLE]
        shutil.rmtree(folder)

    return remove


def make_once(bindir: Path, kind: str, data: Path, make: Callable[[], object]) -> None:
    """Make the empty cluster `data`, or copy it where this run has made one like it before.

    Args:
        bindir: The programs that make it.
        kind: What distinguishes it from other clusters of these programs: the options of initdb, the account.
        data: The cluster.
        make: Makes it.
    """
    if _VARIABLE not in os.environ:
        make()
        return
    # Copies of one build in several homes are the same programs.
    program = (bindir / "postgres").stat()
    words = f"{program.st_size} {int(program.st_mtime)} {kind}"
    kept = Path(os.environ[_VARIABLE], f"empty-{hashlib.sha256(words.encode()).hexdigest()[:12]}")
    with _locked(kept.name):
        if not kept.exists():
            make()
            partial = kept.with_suffix(".partial")
            subprocess.run(["cp", "--archive", "--no-target-directory", str(data), str(partial)], check=True)
            partial.rename(kept)
            return
    subprocess.run(["cp", "--archive", "--no-target-directory", str(kept), str(data)], check=True)


@contextlib.contextmanager
def shared_templates(templates: Path) -> Iterator[None]:
    """Put this run's loaded clusters into a home's `templates`, and leave there those that are loaded meanwhile."""
    shared = Path(os.environ[_VARIABLE], "templates")
    with _locked("templates"):
        _link_templates(shared, templates)
    yield
    with _locked("templates"):
        _link_templates(templates, shared)


def _link_templates(source: Path, target: Path) -> None:
    """Link each loaded cluster: nothing writes to a template's files, so that one may lie in several homes."""
    target.mkdir(parents=True, exist_ok=True)
    for whole in source.glob("*/dataset.json"):
        if not (target / whole.parent.name).exists():
            subprocess.run(["cp", "--archive", "--link", str(whole.parent), str(target)], check=True)


@contextlib.contextmanager
def shared_place(name: str) -> Iterator[Path]:
    """Give a folder of this run, locked meanwhile."""
    folder = Path(os.environ[_VARIABLE], name)
    with _locked(name):
        folder.mkdir(exist_ok=True)
        yield folder


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    with Path(os.environ[_VARIABLE], f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
