"""What deploy/ has fits this pgdyno, and its parts fit each other.

That the steps of the image work, and that Kubernetes takes the Job, is tried by the programs that deploy/README.md names.
"""

from __future__ import annotations

import re

from pgdyno import __version__

from .conftest import TREE
from .test_papers import find_unknown

CONTAINERFILE = (TREE / "deploy" / "container" / "Containerfile").read_text(encoding="utf-8")
JOB = (TREE / "deploy" / "kubernetes" / "job.yaml").read_text(encoding="utf-8")


def find(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text, re.MULTILINE)
    assert isinstance(found, str)
    return found


def test_the_image_takes_what_is_there_and_runs_as_an_ordinary_user() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)", CONTAINERFILE, re.MULTILINE)]
    names = {name.removeprefix("./") for words in copied for name in words}
    ignored = (TREE / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert names == {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all((TREE / name).exists() for name in names)
    uid = find(r"useradd --uid (\d+) ", CONTAINERFILE)
    assert find(r"^USER (.*)", CONTAINERFILE) == f"{uid}:{uid}"
    assert CONTAINERFILE.rindex("\nUSER ") > CONTAINERFILE.rindex("\nRUN ")
    assert "ENV HOME=/data " in CONTAINERFILE
    assert find(r"^CMD \[\"(\w+)\"\]", CONTAINERFILE) == "bench"


def test_the_job_runs_a_command_of_this_pgdyno_without_a_secret_in_it() -> None:
    command, *words = re.findall(r"^ {12}- (\S+)$", find(r"^ {10}args:\n((?: {12}- \S+\n)+)", JOB), re.MULTILINE)
    assert command == "bench"
    assert not find_unknown(command, " ".join(words))
    service = words[words.index("--dsn") + 1].removeprefix("service=")
    assert f"    [{service}]\n" in JOB
    assert "secretKeyRef" not in JOB
    (password,) = re.findall(r"password=(\S+)", JOB)
    assert JOB.count(password) == 1
    folder = find(r"name: server\n +mountPath: (\S+)", JOB)
    assert f"name: PGSERVICEFILE\n              value: {folder}/pg_service.conf\n" in JOB
    assert "\n  pg_service.conf: |\n" in JOB


def test_the_job_fits_the_image() -> None:
    assert find(r"^ +image: (\S+)", JOB) == f"pgdyno:{__version__}"
    uid = find(r"useradd --uid (\d+) ", CONTAINERFILE)
    assert {find(rf"^ +{name}: (\d+)", JOB) for name in ("runAsUser", "runAsGroup", "fsGroup")} == {uid}
    assert "runAsNonRoot: true" in JOB
    assert f"mountPath: {find(r'^VOLUME (.*)', CONTAINERFILE)}\n" in JOB
    assert find(r"secretName: (\S+)", JOB) == find(r"kind: Secret\nmetadata:\n  name: (\S+)", JOB)
    assert find(r"claimName: (\S+)", JOB) == find(r"kind: PersistentVolumeClaim\nmetadata:\n  name: (\S+)", JOB)


def test_the_debian_package_has_a_value_for_every_variable() -> None:
    folder = TREE / "deploy" / "debian"
    build = (folder / "build").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", (folder / "nfpm.yaml").read_text(encoding="utf-8")))
    exported = set(find(r"^export (.*)", build).split())
    asked = set(re.findall(r"\$\{(\w+):\?", build))
    assert used == exported | asked
    assert all(re.search(rf"^{name}=", build, re.MULTILINE) for name in exported)


def test_the_job_is_indented_by_twos_and_without_tabs() -> None:
    for line in JOB.splitlines():
        assert "\t" not in line
        assert (len(line) - len(line.lstrip(" "))) % 2 == 0
