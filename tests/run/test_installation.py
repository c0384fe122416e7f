from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.run.cluster.home import Home
from pgdyno.run.postgres.installation import find_installation, installed_majors, read_server_facts
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.homes import SPECS, installation_of, some_home

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


@pytest.fixture
def closed(home: Home, tmp_path: Path) -> Path:
    """A copy of the embedded package where only root can read it: pytest's folders are, as a clone below /root is."""
    if home.user.is_self:
        pytest.skip("only root runs the server as somebody else")
    source = installation_of(18, home).bindir.parent.parent
    shutil.copytree(source, tmp_path / source.name, symlinks=True)
    shutil.copytree(f"{source}.libs", tmp_path / f"{source.name}.libs")
    return tmp_path / source.name


def test_embedded_programs_out_of_the_servers_reach_are_copied(
    home: Home, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert closed.name not in sys.modules
    monkeypatch.syspath_prepend(closed.parent)
    found = find_installation(ServerSpec(), user=home.user, software_dir=home.software)
    assert found.bindir.is_relative_to(home.software)
    assert found.kind is ServerKind.EMBEDDED
    assert find_installation(ServerSpec(), user=home.user, software_dir=home.software) == found


def test_a_local_installation_is_never_copied_or_opened(home: Home, closed: Path) -> None:
    (closed.parent / "secret").write_text("a key")
    before = set(home.software.iterdir())
    local = ServerSpec(kind=ServerKind.LOCAL, bindir=str(closed / "pginstall" / "bin"))
    with pytest.raises(HostError, match=f"the user {home.user.name} cannot run {closed}") as caught:
        find_installation(local, user=home.user, software_dir=home.software)
    assert "--run-as" in caught.value.hint
    assert set(home.software.iterdir()) == before


def test_what_is_not_installed(home: Home, tmp_path: Path) -> None:
    missing = ServerSpec(kind=ServerKind.LOCAL, version=17)
    with pytest.raises(HostError, match="PostgreSQL 17 is not installed") as caught:
        find_installation(missing, user=home.user, software_dir=home.software)
    assert "15 (/usr/lib/postgresql/15/bin)" in caught.value.detail
    old = ServerSpec(kind=ServerKind.LOCAL, version=12)
    with pytest.raises(SpecError, match="PostgreSQL 12 is not supported") as refused:
        find_installation(old, user=home.user, software_dir=home.software)
    assert "15 to 18, and newer versions" in refused.value.hint
    newer = ServerSpec(kind=ServerKind.LOCAL, version=99)
    with pytest.raises(HostError, match="PostgreSQL 99 is not installed"):
        find_installation(newer, user=home.user, software_dir=home.software)
    empty = ServerSpec(kind=ServerKind.LOCAL, bindir=str(tmp_path))
    with pytest.raises(SpecError, match="there is no postgres in"):
        find_installation(empty, user=home.user, software_dir=home.software)


@pytest.mark.skipif(18 in installed_majors(), reason="an 18 of the distribution is found first")
def test_a_version_that_only_pgdyno_brings(home: Home) -> None:
    named = find_installation(ServerSpec(kind=ServerKind.LOCAL, version=18), user=home.user, software_dir=home.software)
    assert named.facts == find_installation(ServerSpec(), user=home.user, software_dir=home.software).facts


@pytest.mark.parametrize("major", SPECS)
def test_facts_of_the_programs(home: Home, major: int) -> None:
    facts = read_server_facts(installation_of(major, home).bindir)
    assert facts.major == major
    assert re.fullmatch(rf"{major}\.\d+.*", facts.version)
    assert facts.configure


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "#!/bin/sh\necho 'error while loading shared libraries: libssl.so.9' >&2\nexit 127\n",
            "ended with exit code 127\nerror while loading shared libraries: libssl.so.9",
        ),
        ("#!/bin/sh\nkill -SEGV $$\n", "was killed by SIGSEGV"),
    ],
)
def test_a_build_that_does_not_run(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "postgres").write_text(script)
    (tmp_path / "postgres").chmod(0o755)
    with pytest.raises(HostError, match="/postgres does not run") as caught:
        read_server_facts(tmp_path)
    assert caught.value.detail == f"`postgres --version` {said}"
