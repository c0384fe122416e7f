"""`pgdyno tune --dsn --host`: settings for a real server of which only a connection string is known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.program import run_here
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster


@pytest.fixture(params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql('CREATE ROLE "odd one" LOGIN; GRANT ALTER SYSTEM ON PARAMETER max_wal_size TO "odd one"')
        made.sql("ALTER SYSTEM SET random_page_cost = 1.1")
        reload(made, "random_page_cost", "1.1")
        yield made


def reload(cluster: Cluster, name: str, value: str) -> None:
    """Reload, and wait until new sessions have this value."""
    cluster.sql("SELECT pg_reload_conf()")
    while cluster.sql(f"SHOW {name}") != value:
        time.sleep(0.05)


def tune(cluster: Cluster, *words: str, user: str = "odd one") -> list[str]:
    dsn = f"host={cluster.root} port={PORT} user='{user}' dbname=postgres"
    return ["tune", "--dsn", dsn, "--host", "r8g.2xlarge", *words]


def read(cluster: Cluster, user: str = "odd one") -> dict[str, Any]:
    done = run_here(tune(cluster, "--json", user=user))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_what_a_role_may_change_is_marked(cluster: Cluster) -> None:
    files = [(cluster.data / name).read_bytes() for name in ("postgresql.conf", "postgresql.auto.conf")]
    document = read(cluster)
    assert document["given"] == {"name": '"odd one"', "settable": ["max_wal_size"], "way": ""}
    changes = {one["name"]: one for one in document["changes"]}
    assert (changes["random_page_cost"]["is_same"], changes["max_wal_size"]["is_same"]) == (True, False)
    # Debian builds 15 with lz4 and zstd; the other one has neither.
    lacked = document["tuning"]["subject"]["missing_values"].get("wal_compression")
    assert lacked == (None if cluster.version_major == 15 else ["lz4", "zstd"])
    assert not [one for one in document["changes"] if one["target"] in {"sysctl", "sysfs"}]
    assert [(cluster.data / name).read_bytes() for name in ("postgresql.conf", "postgresql.auto.conf")] == files


def test_a_superuser_runs_the_script(cluster: Cluster) -> None:
    done = run_here(tune(cluster, "--form", "alter-system"))
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.replace("\n--", "").split())
    assert '(reload; not by "odd one")' in words
    assert "GRANT ALTER SYSTEM ON PARAMETER" in words
    script = cluster.root / "tune.sql"
    script.write_text(done.stdout)
    script.chmod(0o644)
    cluster.run(
        "psql",
        "-X",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        str(cluster.root),
        "-p",
        str(PORT),
        "-U",
        "postgres",
        "-f",
        str(script),
    )
    derived = next(one["value"] for one in read(cluster)["changes"] if one["name"] == "max_wal_size")
    reload(cluster, "max_wal_size", derived)
    again = read(cluster, user="postgres")
    waiting = {one["name"] for one in again["changes"] if one["target"] == "postgresql" and not one["is_same"]}
    assert "max_wal_size" not in waiting
    assert {one["takes"] for one in again["changes"] if one["name"] in waiting} <= {"restart"}


@pytest.mark.parametrize("cluster", [18], indirect=True)
def test_what_it_does_not_do(cluster: Cluster) -> None:
    without = [word for word in tune(cluster) if word not in {"--host", "r8g.2xlarge"}]
    for words, said in (
        (without, "does not show the machine"),
        (tune(cluster, "--apply", "--restart"), "for a server of this machine"),
        (tune(cluster, "--allow", "busy"), "--allow needs --apply"),
        (tune(cluster, "--form", "sysctl"), "for a server of this machine"),
        (tune(cluster, "--set", "wal_compression=never"), "never"),
    ):
        done = run_here(words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
