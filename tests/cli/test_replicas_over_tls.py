"""Replicas of a server of the user's over TLS: certificates of both ends are checked, by pgdyno, pgbench and the samplers alike."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.types import TrialStatus
from tests.cli.program import Bench
from tests.cli.test_replicas_given import SHORT
from tests.ready_program import run_program
from tests.replicas import streaming
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running_given

pytestmark = pytest.mark.cluster
_FIRST, _SECOND, _REST = LOOPBACK.split(".", 2)
REPLICA = f"{_FIRST}.{int(_SECOND) + 64}.{_REST}"
HBA = "local all,replication all trust\nhostssl all bench 127.0.0.0/8 cert\n"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


def openssl(*words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certify(name: str, folder: Path, *, alternative: str = "") -> None:
    """Make a key, and a certificate that the root of the folder signs."""
    openssl("req", "-new", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "asked", folder=folder)
    (folder / "more").write_text(f"subjectAltName = DNS:{alternative}\n" if alternative else "")
    signing = ("-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial", "-days", "2", "-extfile", "more")
    openssl("x509", "-req", "-in", "asked", *signing, "-out", f"{name}.crt", folder=folder)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a root certificate, and what it has signed for the servers and for the role."""
    folder = tmp_path_factory.mktemp("certificates")
    root = ("-subj", "/CN=root", "-keyout", "root.key", "-out", "root.crt")
    openssl("req", "-new", "-x509", "-nodes", "-days", "2", *root, folder=folder)
    certify("server", folder, alternative="db.test")
    certify("bench", folder)
    return folder


def use_certificates(cluster: Cluster, address: str, certificates: Path) -> None:
    """Have a server take the role over TLS alone, by its certificate."""
    cluster.stop()
    for name in ("root.crt", "server.crt", "server.key"):
        place = cluster.data / name
        shutil.copy(certificates / name, place)
        shutil.chown(place, cluster.user.uid, cluster.user.gid)
        place.chmod(0o600)
    (cluster.data / "pg_hba.conf").write_text(HBA)
    cluster.start("ssl=on", "ssl_ca_file=root.crt", f"listen_addresses={address}")


@pytest.fixture(scope="module")
def pair(certificates: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and a replica of the distribution's, since the embedded server has no TLS."""
    with running_given(15) as primary, streaming(primary) as (standby,):
        use_certificates(primary, LOOPBACK, certificates)
        use_certificates(standby, REPLICA, certificates)
        yield primary, standby


def way(address: str, *, host: str = "db.test", more: str = "") -> str:
    return f"host={host} hostaddr={address} port={PORT} user=bench dbname=postgres sslmode=verify-full {more}"


def run(bench: Bench, primary: str, replica: str, *, home: Path) -> subprocess.CompletedProcess[str]:
    words = ("bench", "--dsn", primary, "--endpoint", f"replicas={replica}", *SHORT)
    return run_at(bench.folder, *words, home=home)


def run_at(folder: Path, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_program(words, cwd=folder, env={**os.environ, "COLUMNS": "200", "HOME": str(home)})


def check(bench: Bench, done: subprocess.CompletedProcess[str], certificates: Path) -> None:
    assert done.returncode == 0, done.stderr
    store = open_record(bench.record)
    record, (trial,) = store.read_record(), store.read_trials()
    (replica,) = record.replicas
    assert (replica.is_encrypted, replica.sslmode, replica.host) == (True, "verify-full", "db.test")
    assert (replica.tls or "").startswith("TLSv1.")
    assert trial.status is TrialStatus.FINISHED
    assert {"server", "ping"}.isdisjoint({gap.source for gap in trial.gaps})
    key = (certificates / "bench.key").read_text()
    assert not any(key in path.read_text(errors="replace") for path in bench.folder.rglob("*") if path.is_file())


def test_certificates_that_the_strings_name(pair: tuple[Cluster, Cluster], certificates: Path, bench: Bench) -> None:
    own = bench.folder / "own"
    shutil.copytree(certificates, own)
    # Children work in another folder.
    more = "sslrootcert={0}root.crt sslcert={0}bench.crt sslkey={0}bench.key"
    done = run(bench, *(way(address, more=more.format("own/")) for address in (LOOPBACK, REPLICA)), home=bench.folder)
    (own / "bench.key").unlink()
    check(bench, done, certificates)
    server = open_record(bench.record).read_record().study.server
    assert all(f"sslkey={own}/bench.key" in one for one in (server.dsn or "", *server.replicas))
    # In a study, paths start at its own folder.
    study = (bench.record / "study.toml").read_text()
    assert study.count(f"={own}/") == 6
    (own / "mine.toml").write_text(study.replace(f"={own}/", "="))
    shutil.rmtree(bench.record)
    shutil.copy(certificates / "bench.key", own)
    done = run_at(bench.folder, "run", "own/mine.toml", home=bench.folder)
    (own / "bench.key").unlink()
    check(bench, done, certificates)


def test_certificates_where_libpq_looks_for_them(
    pair: tuple[Cluster, Cluster], certificates: Path, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    folder = home / ".postgresql"
    folder.mkdir()
    for name, found in (("root.crt", "root.crt"), ("bench.crt", "postgresql.crt"), ("bench.key", "postgresql.key")):
        shutil.copy(certificates / name, folder / found)
    check(bench, run(bench, way(LOOPBACK), way(REPLICA), home=home), certificates)


def test_a_replica_that_shows_another_name_and_one_that_wants_a_certificate(
    pair: tuple[Cluster, Cluster], certificates: Path, bench: Bench
) -> None:
    root = f"sslrootcert={certificates}/root.crt"
    more = f"{root} sslcert={certificates}/bench.crt sslkey={certificates}/bench.key"
    stranger = run(bench, way(LOOPBACK, more=more), way(REPLICA, host="other.test", more=more), home=bench.folder)
    assert stranger.returncode == 4, stranger.stderr
    assert f"replica1 (other.test:{PORT}): cannot connect to the server" in stranger.stderr
    assert 'does not match host name "other.test"' in stranger.stderr
    nobody = run(bench, way(LOOPBACK, more=more), way(REPLICA, more=root), home=bench.folder)
    assert nobody.returncode == 4, nobody.stderr
    assert f"replica1 (db.test:{PORT}): cannot connect to the server" in nobody.stderr
    assert "certificate" in nobody.stderr
    assert "see sslmode, sslrootcert and sslcert of libpq" in nobody.stderr
    assert not bench.records
