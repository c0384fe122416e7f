"""The command that prints the password of a given server; that none is seen is tested by tests/cli/test_password_given.py."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.run.given import password_command
from pgdyno.run.given.access import open_access
from pgdyno.run.given.conninfo import use_password_command
from pgdyno.run.given.password_command import PasswordCommand, read_password_command
from pgdyno.run.postgres import sql
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

SECRET = "kanari:/vogel@7"
KEYWORDS = f"host={LOOPBACK} port={PORT} user=bird dbname=postgres"
cluster_test = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18, conf="password_encryption = 'scram-sha-256'\n") as made:
        made.listen("scram-sha-256")
        made.sql(f"CREATE ROLE bird LOGIN PASSWORD '{SECRET}'")
        yield made


@pytest.fixture(autouse=True)
def no_command() -> Iterator[None]:
    yield
    use_password_command(None)


@cluster_test
def test_a_token_is_asked_for_again_before_it_ends(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    use_password_command(PasswordCommand(("cat", str(token)), renew_s=0.1))
    with open_access(KEYWORDS) as address:
        sql.connect(address).close()
        cluster.sql("ALTER ROLE bird PASSWORD 'new'")
        with pytest.raises(StepFailedError):
            sql.connect(address)
        token.write_text("new\n")

        def connects() -> bool:
            try:
                sql.connect(address).close()
            except StepFailedError:
                return False
            return True

        try:
            assert wait_until(connects)
        finally:
            cluster.sql(f"ALTER ROLE bird PASSWORD '{SECRET}'")
    # It is waited for, but not for a command that takes long.
    assert wait_until(lambda: "pgdyno-password" not in {thread.name for thread in threading.enumerate()})


@cluster_test
def test_a_command_that_hangs_holds_up_no_end_and_no_other_file(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.is_ready
    first, gate, other = tmp_path / "first", tmp_path / "gate", tmp_path / "other"
    first.touch()
    os.mkfifo(gate)
    words = f"rm '{first}' 2>&- || cat '{gate}'; echo '{SECRET}'"
    use_password_command(PasswordCommand(("sh", "-c", words), renew_s=0.1))
    with open_access(KEYWORDS) as address:
        (renewing,) = (one for one in threading.enumerate() if one.name == "pgdyno-password")
        # It opens once the command reads.
        opened = gate.open("w")
        (password_file,) = address.inherited
    assert renewing.is_alive()
    other.write_text("kept")
    # Another file gets the number of the password's.
    descriptor = os.open(other, os.O_RDWR)
    os.dup2(descriptor, password_file)
    opened.close()
    renewing.join()
    for number in {descriptor, password_file}:
        os.close(number)
    assert other.read_text() == "kept"


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("false", "the password command ended with exit code 1"),
        ("true", "is to print one line"),
        ("printf 'one\\ntwo\\n'", "is to print one line"),
    ],
)
def test_a_command_that_gives_no_password_is_told(command: str, fact: str) -> None:
    with pytest.raises(StepFailedError, match=fact) as caught:
        read_password_command(command).get()
    assert "two" not in f"{caught.value.fact}{caught.value.detail}"


def test_what_a_command_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_command, "_PATIENCE_S", 0.5)
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # A pipe ends when its last writer does.
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(StepFailedError, match="did not end within"):
        read_password_command(f"sh -c 'sleep 3600 > {alive}; echo late'").get()
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_what_is_no_command_is_refused() -> None:
    with pytest.raises(SpecError, match="is empty"):
        read_password_command(" ")
    with pytest.raises(SpecError, match="No closing quotation"):
        read_password_command("cat 'x")
    use_password_command(PasswordCommand(("true",)))
    with pytest.raises(SpecError, match="exclude each other"), open_access(f"{KEYWORDS} password=x"):
        pass
