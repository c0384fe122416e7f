"""A canary for a password, in each form in which a user may give it, through a whole bench: it is seen nowhere."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.ready_program import Program
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running

pytestmark = pytest.mark.cluster
# No other process of this machine has it.
SECRET = f"kanari:/vogel@{os.getpid()}"
ENCODED = f"kanari%3A%2Fvogel%40{os.getpid()}"
KEYWORDS = f"host={LOOPBACK} port={PORT} user=bird dbname=postgres"
FORMS = ("URI", "keyword", "PGPASSWORD", "PGPASSFILE", "passfile", "service", "command")
TYPED = frozenset({"URI", "keyword"})
"""Forms in which the user's own command line has it."""
STARTED = (b"pgbench", b"server_sampler", b"pinger")
"""Programs that pgdyno starts for a trial, by a word of their command lines."""
QUICK = (
    *("--quick", "--stock-only", "--scale", "1", "--clients", "2", "--rate", "100"),
    *("--rounds", "1", "--duration", "1s", "--warm-up", "0s"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18, conf="password_encryption = 'scram-sha-256'\n") as made:
        made.listen("scram-sha-256")
        made.sql(f"CREATE ROLE bird LOGIN CREATEDB PASSWORD '{SECRET}'")
        yield made


def give_password(form: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Put the password where a user may have it; return the words that name the server, and the environment."""
    passwords, services, token = (folder / name for name in ("passwords", "services", "token"))
    passwords.write_text(f"{LOOPBACK}:{PORT}:*:bird:{SECRET.replace(':', chr(92) + ':')}\n")
    passwords.chmod(0o600)
    services.write_text(f"[mine]\nhost={LOOPBACK}\nport={PORT}\nuser=bird\ndbname=postgres\npassword={SECRET}\n")
    token.write_text(f"{SECRET}\n")
    given: dict[str, tuple[list[str], dict[str, str]]] = {
        "URI": (["--dsn", f"postgresql://bird:{ENCODED}@{LOOPBACK}:{PORT}/postgres"], {}),
        "keyword": (["--dsn", f"{KEYWORDS} password='{SECRET}'"], {}),
        "PGPASSWORD": (["--dsn", KEYWORDS], {"PGPASSWORD": SECRET}),
        "PGPASSFILE": (["--dsn", KEYWORDS], {"PGPASSFILE": str(passwords)}),
        "passfile": (["--dsn", f"{KEYWORDS} passfile='{passwords}'"], {}),
        "service": (["--dsn", "service=mine"], {"PGSERVICEFILE": str(services)}),
        "command": (["--dsn", KEYWORDS, "--password-command", f"cat '{token}'"], {}),
    }
    return given[form]


def list_processes() -> set[str]:
    return {entry.name for entry in os.scandir("/proc") if entry.name.isdigit()}


def read_processes(own: Sequence[str], older: set[str], seen: dict[str, set[bytes]], is_over: threading.Event) -> None:
    """Read arguments and environment of every process of this machine but older ones and the program's own, again and again."""
    while not is_over.wait(0.1):
        there = list_processes()
        # The number of one that has ended may become that of another.
        older &= there
        for place in (Path("/proc", number) for number in there - older):
            try:
                # Until it has become another program, a child shows the arguments and the environment of its parent.
                if (arguments := (place / "cmdline").read_bytes()).split(b"\0")[:-1] == [
                    os.fsencode(word) for word in own
                ]:
                    continue
                seen["cmdline"].add(arguments)
                seen["environ"].add((place / "environ").read_bytes())
            except OSError:
                continue


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What reports take long to make, made once."""
    return tmp_path_factory.mktemp("cache")


def holds_secret(content: bytes) -> bool:
    return SECRET.encode() in content or ENCODED.encode() in content


def run_watched(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str, dict[str, set[bytes]]]:
    """Run the program and read all other processes meanwhile; return its exit code, what it printed, and what they showed."""
    (folder / "home").mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(folder / "home"), **environment}
    seen: dict[str, set[bytes]] = {"cmdline": set(), "environ": set()}
    is_over, older = threading.Event(), list_processes()
    with Program(
        words, forks_helpers=False, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as program:
        reader = threading.Thread(target=read_processes, args=(program.args, older, seen, is_over))
        reader.start()
        said, _ = program.communicate()
        is_over.set()
        reader.join()
    return program.returncode, said, seen


@pytest.mark.parametrize("form", FORMS)
def test_a_password_is_seen_nowhere(cluster: Cluster, cache: Path, form: str, tmp_path: Path) -> None:
    assert cluster.is_ready
    secrets, folder = tmp_path / "secrets", tmp_path / "folder"
    secrets.mkdir()
    folder.mkdir()
    words, environment = give_password(form, secrets)
    environment["XDG_CACHE_HOME"] = str(cache)
    seen: dict[str, set[bytes]] = {"cmdline": set(), "environ": set()}
    for _ in range(10):
        code, said, shown = run_watched(["bench", *words, *QUICK], folder, environment)
        assert code == 0, said
        seen = {name: contents | shown[name] for name, contents in seen.items()}
        # They run for a second or two, in which this process may have slept.
        if all(any(program in one for one in seen["cmdline"]) for program in STARTED):
            break
    for program in STARTED:
        assert any(program in one for one in seen["cmdline"]), program
    assert "median" in said or "TPS" in said
    # Where the user has put it into the environment, pgdyno's children, whose own is seen, inherit none of it.
    assert any(os.fsencode(f"HOME={folder / 'home'}") in one for one in seen["environ"])
    assert not any(holds_secret(one) for one in seen["environ"])
    assert not any(holds_secret(one) for one in seen["cmdline"])
    assert not holds_secret(said.encode())
    files = [one for place in (folder, cache) for one in place.rglob("*") if one.is_file()]
    assert {"record.json", "pgdyno.log", "report.html", "report.md", "trial.json"} <= {one.name for one in files}
    assert [one for one in files if holds_secret(one.read_bytes())] == []
    assert ("password stands on the command line" in said) == (form in TYPED)


def test_the_password_of_a_key_is_refused_and_not_told(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.is_ready
    environment = {"PGPASSWORD": SECRET}
    code, said, seen = run_watched(
        ["bench", "--dsn", f"{KEYWORDS} sslpassword='{SECRET}'", *QUICK], tmp_path, environment
    )
    assert (code, "sslpassword cannot be handed to pgbench" in said) == (2, True), said
    contents = [*seen["cmdline"], *seen["environ"], said.encode()]
    contents += [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    assert not any(holds_secret(one) for one in contents)
