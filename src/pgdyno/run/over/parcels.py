"""Choose what is carried to a machine: pgdyno's run-time packages for its Python, and pgdyno itself, each by the sum of its content.

Where that machine has the same Python and processor as this one, the packages of this environment are carried as they are.
For another one, pip fetches those of the lock file, once; they are kept in this account's cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.run.host import process
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.spec.shipped import list_shipped

_PACKAGE = Path(__file__).parents[2]
_LOCK = "requirements.lock"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_COMPILED = "__pycache__"
# Source: PyPA, recording installed projects.
_FILES = "RECORD"
_SUM_LENGTH = 16
_FETCHES_WITHIN_S = 3600.0
# The oldest glibc that wheels are named after. Source: PEP 599.
_OLDEST_GLIBC_MINOR = 17
# Runs the pip that Python keeps for new environments, from its wheel, as tools/environment.sh does.
_PIP = """
import ensurepip, os, runpy, sys, sysconfig
folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
sys.path.insert(0, os.path.join(folder, "pip-%s-py3-none-any.whl" % ensurepip.version()))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which builds of packages run on a machine."""

    minor: int
    """Of its Python 3."""
    architecture: str
    glibc_minor: int
    """Of its glibc 2."""


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to carry."""

    name: str
    """Ends in the sum of its content."""
    title: str
    """What it holds."""
    list_files: Callable[[], Mapping[str, Path]]
    """Return the file here for each path in the folder; this may take minutes, while pip fetches packages."""
    packages: str | None = None
    """The folder of packages that it needs beside it."""


def pack_packages(there: Platform, here: Platform) -> Parcel:
    """Return the run-time packages for another machine.

    Raises:
        StepFailedError: pgdyno's lock file is missing.
    """
    lock = find_lock()
    pinned = dict(_PINNED.findall(lock.read_text(encoding="utf-8")))
    is_alike = (there.minor, there.architecture) == (here.minor, here.architecture)
    # What was built for a newer glibc does not load with an older one.
    own = _find_own(pinned) if is_alike and there.glibc_minor >= here.glibc_minor else None
    versions = pinned if own is None else {name: one.version for name, one in own.items()}
    words = [f"3.{there.minor}", there.architecture, *(f"{name}=={version}" for name, version in versions.items())]
    words += [] if own is not None else [f"glibc 2.{there.glibc_minor}"]
    name = f"packages-{_sum(words)}"
    return Parcel(
        name=name,
        title=f"{len(versions)} packages for Python 3.{there.minor}",
        list_files=lambda: _list_fetched(name, lock, there) if own is None else _list_own(own),
    )


class ProgramFiles:
    """The files of pgdyno itself, with its studies: `read` them, which needs no machine, then `pack` them for one."""

    def __init__(self) -> None:
        self._files: Mapping[str, Path] = {}
        self._sums: Mapping[str, bytes] = {}

    def read(self) -> None:
        """Read the files."""
        self._files = _list_program()
        self._sums = {path: hashlib.sha256(source.read_bytes()).digest() for path, source in self._files.items()}

    def pack(self, there: Platform, packages: Parcel) -> Parcel:
        """Return the files as they lie on a machine: an environment that sees the packages."""
        inside = f"lib/python3.{there.minor}/site-packages"
        digest = hashlib.sha256(packages.name.encode())
        for path in sorted(self._files):
            digest.update(f"{inside}/{path}\n".encode())
            digest.update(self._sums[path])
        return Parcel(
            name=f"pgdyno-{digest.hexdigest()[:_SUM_LENGTH]}",
            title="pgdyno itself",
            list_files=lambda: _add_compiled({f"{inside}/{path}": source for path, source in self._files.items()}),
            packages=packages.name,
        )


def find_lock() -> Path:
    """Return the file with the versions of all packages.

    Raises:
        StepFailedError: It is missing.
    """
    # A wheel holds it in the package, a clone at its top.
    for path in (_PACKAGE / _LOCK, _PACKAGE.parents[1] / _LOCK):
        if path.is_file():
            return path
    raise StepFailedError(f"pgdyno's {_LOCK} is missing", detail=str(_PACKAGE), hint="install pgdyno again")


def _sum(words: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest()[:_SUM_LENGTH]


def _find_own(names: Mapping[str, str]) -> Mapping[str, Distribution] | None:
    """Return the packages of this environment; None if it lacks one, or the list of one's files."""
    try:
        found = {name: distribution(name) for name in names}
    except PackageNotFoundError:
        return None
    # To read the lists takes a tenth of the time that making paths of their 10,000 lines does.
    return None if any(one.read_text(_FILES) is None for one in found.values()) else found


def _list_own(packages: Mapping[str, Distribution]) -> Mapping[str, Path]:
    found = {}
    for package in packages.values():
        for file in package.files or ():
            path = str(file)
            # Programs lie outside of the folder of packages.
            if path.startswith("..") or file.suffix == ".pyc":
                continue
            source = Path(str(file.locate()))
            if source.is_file():
                found[path] = source
    return _add_compiled(found)


def _add_compiled(files: Mapping[str, Path]) -> Mapping[str, Path]:
    """Return files with what Python has compiled of the modules among them: that need not be done again there."""
    found = dict(files)
    for path, source in files.items():
        name = f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        compiled = source.parent / _COMPILED / name
        if source.suffix == ".py" and compiled.is_file():
            found[str(Path(path).parent / _COMPILED / name)] = compiled
    return found


def _list_program() -> Mapping[str, Path]:
    files = {f"{_PACKAGE.name}/{path}": source for path, source in _walk(_PACKAGE)}
    shipped = {f"{_PACKAGE.name}/studies/{name}.toml": source for name, source in list_shipped().items()}
    return files | shipped | {f"{_PACKAGE.name}/{_LOCK}": find_lock()}


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    # Every command on another machine waits for this: Path.rglob takes seven times as long.
    for where, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name != _COMPILED)
        inside = os.path.relpath(where, folder)
        for name in sorted(names):
            source = Path(where, name)
            if source.is_file():
                yield os.path.normpath(f"{inside}/{name}"), source


def _list_fetched(name: str, lock: Path, there: Platform) -> Mapping[str, Path]:
    """Fetch the packages for another kind of machine, unless this account has them."""
    parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pgdyno", "fetched")
    folder = parent / name
    if not folder.is_dir():
        try:
            parent.mkdir(parents=True, exist_ok=True)
            remove_stale_folders(parent, "part-")
            part = parent / f"{name_of_this_process('part-')}{name}"
            _fetch(part, lock, there)
            part.rename(folder)
        except OSError as exc:
            raise StepFailedError("cannot keep the packages for another machine", detail=str(exc)) from exc
    return dict(_walk(folder))


def _fetch(folder: Path, lock: Path, there: Platform) -> None:
    tags = [f"manylinux_2_{minor}" for minor in range(there.glibc_minor, _OLDEST_GLIBC_MINOR - 1, -1)]
    platforms = [f"--platform={tag}_{there.architecture}" for tag in (*tags, "manylinux2014", "linux")]
    argv = [sys.executable, "-I", "-c", _PIP, "install", "--target", str(folder), "--requirement", str(lock)]
    argv += ["--no-input", "--progress-bar=off", "--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    argv += [f"--python-version=3.{there.minor}", "--implementation=cp", "--disable-pip-version-check", *platforms]
    kept = {key: value for key, value in os.environ.items() if key not in {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"}}
    try:
        done = process.run(argv, timeout_s=_FETCHES_WITHIN_S, env={**kept, "PIP_USER": "0"}, ends_group=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if done.exit_code:
        shutil.rmtree(folder, ignore_errors=True)
        raise StepFailedError(
            f"the packages for Python 3.{there.minor} on {there.architecture} cannot be fetched",
            detail="\n".join(done.stderr.strip().splitlines()[-4:]),
            hint="this needs the package index or a mirror of it here (pip's own settings apply); with the same Python on both"
            " machines, nothing is fetched",
        )
