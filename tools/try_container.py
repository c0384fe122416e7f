"""Run the steps of deploy/container/Containerfile in bare Debian roots, where no container engine works; needs root and mmdebstrap.

Each stage begins with a root made by mmdebstrap, in place of the image that FROM names. RUN runs in it, COPY takes what
.dockerignore leaves of the clone. Then the last stage's entry point measures, as its USER in its WORKDIR, in control groups with
one CPU and 2 GB of memory, with all but its volume and /tmp read-only. The record must be of an ordinary account and of these limits.

What an engine adds is not tried: layers, seccomp, capabilities, overlayfs, volumes.

    python tools/try_container.py [--root ARCHIVE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bare_root import SHORT_BENCH, BareRoot, make_archive, unpack

CLONE = Path(__file__).resolve().parents[1]
CONTAINERFILE = CLONE / "deploy" / "container" / "Containerfile"
_IMAGE = re.compile(r"debian:(\w+)-slim")
_CPUS, _MEMORY_BYTES = 1, 2 << 30


@dataclass(kw_only=True)
class Stage:
    """What the instructions so far have made of a stage."""

    root: BareRoot
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    volume: str = ""
    entry: list[str] = field(default_factory=list)


def read_instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile, each as its word and the rest."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def follow(stages: dict[str, Stage], stage: Stage, word: str, rest: str) -> None:
    """Carry out an instruction in a stage.

    Raises:
        ValueError: It is none of those that the file had when this was written.
    """
    if word == "RUN":
        stage.root.run("/bin/sh", "-c", rest, user=stage.user, folder=stage.folder, environment=stage.environment)
    elif word == "COPY":
        copy(stages, stage, shlex.split(rest))
    elif word == "ENV":
        stage.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    elif word == "WORKDIR":
        stage.folder = rest
        (stage.root.path / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word in {"USER", "VOLUME"}:
        setattr(stage, word.lower(), rest)
    elif word == "ENTRYPOINT":
        stage.entry = json.loads(rest)
    elif word != "CMD":
        raise ValueError(f"{word} {rest}: not known here")


def copy(stages: dict[str, Stage], stage: Stage, words: list[str]) -> None:
    """Copy files of the clone, or of an earlier stage: into a folder where the target ends with /, else to the target."""
    # As .dockerignore says.
    source, but = CLONE, "__pycache__"
    if words[0].startswith("--from="):
        source, but = stages[words.pop(0).removeprefix("--from=")].root.path, ""
    *names, target = words
    place = target if target.startswith("/") else f"{stage.folder}/{target}"
    for name in names:
        stage.root.copy_in(source / name.lstrip("/"), f"{place}/{name}" if target.endswith("/") else place, but=but)


@contextlib.contextmanager
def limit() -> Iterator[list[Path]]:
    """Make control groups with the limits, of version 2 or 1, and remove them in the end."""
    top, name = Path("/sys/fs/cgroup"), "pgdyno-container"
    if (top / "cgroup.controllers").exists():
        limits = {top / name: {"cpu.max": f"{_CPUS * 100_000} 100000", "memory.max": str(_MEMORY_BYTES)}}
    else:
        limits = {
            top / "cpu" / name: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(_CPUS * 100_000)},
            top / "memory" / name: {"memory.limit_in_bytes": str(_MEMORY_BYTES)},
        }
    for group, files in limits.items():
        group.mkdir()
        for file, value in files.items():
            (group / file).write_text(value)
    try:
        yield list(limits)
    finally:
        for group in limits:
            group.rmdir()


def measure(stage: Stage) -> None:
    """Run the entry point, and compare the record with the limits.

    Raises:
        RuntimeError: It failed, or the record has something else.
    """
    options = {"user": stage.user, "folder": stage.folder, "environment": stage.environment}
    with limit() as groups:
        stage.root.run(*stage.entry, *SHORT_BENCH, groups=groups, writable=stage.volume, **options)
    folder = stage.root.path / stage.folder.lstrip("/") / "record"
    record, trial = (json.loads((folder / name).read_bytes()) for name in ("record.json", "trials/0001/trial.json"))
    found = {
        "trial": trial["status"],
        "owner": f"{folder.stat().st_uid}:{folder.stat().st_gid}",
        "cpu_limit": record["host"]["cpu_limit"],
        "memory_limit_bytes": record["host"]["memory_limit_bytes"],
    }
    sys.stdout.write(json.dumps(found) + "\n")
    wanted = {"trial": "finished", "owner": stage.user, "cpu_limit": _CPUS, "memory_limit_bytes": _MEMORY_BYTES}
    if found != wanted:
        raise RuntimeError(f"the record should have {wanted}")


def main() -> None:
    """Carry out all instructions, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="an archive of such a root, in place of a new one")
    options = parser.parse_args()
    instructions = read_instructions(CONTAINERFILE.read_text(encoding="utf-8"))
    stages: dict[str, Stage] = {}
    with contextlib.ExitStack() as stack:
        archives: dict[str, Path] = {}
        for word, rest in instructions:
            sys.stdout.write(f"{word} {rest}\n")
            sys.stdout.flush()
            if word == "FROM":
                image, _, name = rest.partition(" AS ")
                (suite,) = _IMAGE.fullmatch(image).groups()  # type: ignore[union-attr]
                if suite not in archives:
                    archives[suite] = stack.enter_context(make_archive(suite, [], made=options.root))
                stage = stages[name] = Stage(root=stack.enter_context(unpack(archives[suite])))
            else:
                follow(stages, stage, word, rest)
        measure(stage)


if __name__ == "__main__":
    main()
