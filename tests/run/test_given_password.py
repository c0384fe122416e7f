"""The password of a given server, in each form in which a user may give it: it reaches every connection, and is seen nowhere."""

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
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import QueryMode
from tests.cli.program import wait_until
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running

SECRET = "kanari:/vogel@7"
ENCODED = "kanari%3A%2Fvogel%407"
KEYWORDS = f"host={LOOPBACK} port={PORT} user=bird dbname=postgres"
FORMS = ("URI", "keyword", "PGPASSWORD", "PGPASSFILE", "passfile", "service", "command")
cluster_test = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18, conf="password_encryption = 'scram-sha-256'\n") as made:
        (made.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        made.stop()
        made.start(f"listen_addresses={LOOPBACK}")
        made.sql(f"CREATE ROLE bird LOGIN PASSWORD '{SECRET}'")
        yield made


@pytest.fixture(autouse=True)
def no_command() -> Iterator[None]:
    yield
    use_password_command(None)


def give_password(form: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the password where a user may have it, and return the connection string."""
    passwords = folder / "passwords"
    passwords.write_text(f"{LOOPBACK}:{PORT}:postgres:bird:{SECRET.replace(':', chr(92) + ':')}\n")
    passwords.chmod(0o600)
    match form:
        case "URI":
            return f"postgresql://bird:{ENCODED}@{LOOPBACK}:{PORT}/postgres"
        case "keyword":
            return f"{KEYWORDS} password='{SECRET}'"
        case "PGPASSWORD":
            monkeypatch.setenv("PGPASSWORD", SECRET)
        case "PGPASSFILE":
            monkeypatch.setenv("PGPASSFILE", str(passwords))
        case "passfile":
            return f"{KEYWORDS} passfile='{passwords}'"
        case "service":
            services = folder / "services"
            services.write_text(
                f"[mine]\nhost={LOOPBACK}\nport={PORT}\nuser=bird\ndbname=postgres\npassword={SECRET}\n"
            )
            monkeypatch.setenv("PGSERVICEFILE", str(services))
            return "service=mine"
        case _:
            (folder / "token").write_text(f"{SECRET}\n")
            use_password_command(read_password_command(f"cat '{folder / 'token'}'"))
    return KEYWORDS


def read_children(seen: set[bytes], is_over: threading.Event) -> None:
    """Read the arguments and the environment of each pgbench of this test while it runs."""
    while not is_over.wait(0.02):
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes()
                if b"pgbench" in words and LOOPBACK.encode() in words:
                    seen |= {words, (place / "environ").read_bytes()}
            except OSError:
                continue


@cluster_test
@pytest.mark.parametrize("form", FORMS)
def test_a_password_reaches_every_child_and_is_seen_nowhere(
    cluster: Cluster, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.is_ready
    monkeypatch.setenv("HOME", str(tmp_path))
    script, output = tmp_path / "one.sql", tmp_path / "output"
    script.write_text("SELECT 1;\n")
    me = ServerUser(name="me", uid=os.geteuid(), gid=os.getegid())
    pgbench = Pgbench(installation=find_installation(ServerSpec(), user=me, software_dir=Path("/none")), user=me)
    seen: set[bytes] = set()
    is_over = threading.Event()
    reader = threading.Thread(target=read_children, args=(seen, is_over))
    with open_access(give_password(form, tmp_path, monkeypatch)) as address:
        with sql.connect(address) as connection:
            assert connection.info.user == "bird"
        run = LoadRun(
            address=address,
            scripts=((str(script), 1),),
            mode=QueryMode.SIMPLE,
            clients=1,
            threads=1,
            duration_s=1,
            random_seed=1,
            scale=1,
        )
        reader.start()
        done = pgbench.run_load(run, directory=output)
        is_over.set()
        reader.join()
        assert done.exit_code == 0
    assert len(seen) >= 2
    kept = [one.read_bytes() for one in output.rglob("*") if one.is_file()]
    for content in (*seen, *kept, repr(address).encode(), repr(run).encode()):
        assert SECRET.encode() not in content
        assert ENCODED.encode() not in content


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
            assert wait_until(connects, seconds=60)
        finally:
            cluster.sql(f"ALTER ROLE bird PASSWORD '{SECRET}'")
    assert "pgdyno-password" not in {thread.name for thread in threading.enumerate()}


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
        read_password_command(f"sh -c 'sleep 600 > {alive}; echo late'").get()
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
