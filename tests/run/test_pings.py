"""Pings beside a load, and the exchanges of a transaction, on real servers behind a real delay."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.analyse.transaction_time.exchanges import BUILTIN_EXCHANGES, count_in_script
from pgdyno.record.pgbench.output import parse_summary
from pgdyno.record.samples.pings import PINGS_FILE, read_pings
from pgdyno.record.samples.pooler import POOLER, read_pooler
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import CONSOLE
from pgdyno.run.sample.gaps import SamplerGap
from pgdyno.run.sample.samplers import SERVER, Samplers
from tests.cli.experiments import LATE
from tests.rows import check_rows
from tests.run.test_privileges import pooling
from tests.tools.delay_proxy import delaying, read_held
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running

pytestmark = pytest.mark.cluster
DELAY_S = 0.002
# The clocks of the proxy and of what is behind it may be slewed apart.
CLOCKS = 0.99


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.listen()
        made.sql("CREATE DATABASE loaded")
        made.sql("CREATE ROLE plain LOGIN")
        yield made


def ping(folder: Path, port: int) -> Samplers:
    address = Address(host=LOOPBACK, port=port, user="postgres", dbname="loaded")
    return Samplers(directory=folder, address=address, left_out=frozenset({SERVER}), is_elsewhere=True)


def wait_for_lines(folder: Path, count: int) -> None:
    deadline_s = time.monotonic() + 600
    while (folder / PINGS_FILE).read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def list_gaps(samplers: Samplers) -> list[SamplerGap]:
    """Leave out those of samples that came late, as they do on a busy machine."""
    return [gap for gap in samplers.gaps if gap.reason != LATE]


def test_a_ping_takes_at_least_as_long_as_the_way(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "held"
    began_s = time.monotonic()
    with delaying((LOOPBACK, PORT), delay_s=DELAY_S, output=output) as port, ping(tmp_path, port) as samplers:
        wait_for_lines(tmp_path, 8)
        # Its transactions do not count for the database whose counters are read.
        asked = "SELECT DISTINCT datname FROM pg_stat_activity WHERE application_name = 'pgdyno-ping'"
        assert cluster.sql(asked) == "postgres"
    assert list_gaps(samplers) == []
    pings = read_pings(tmp_path)
    assert len(pings.round_trip_s) >= 7
    assert pings.round_trip_s.min() >= CLOCKS * 2 * DELAY_S
    assert began_s < pings.began_s[0]
    assert (pings.began_s[1:] > pings.began_s[:-1]).all()
    (held,) = [one for one in read_held(output) if one.program == "pgdyno-ping"]
    assert held.asked_count >= len(pings.round_trip_s)
    assert held.asked_s >= CLOCKS * DELAY_S * held.asked_count


def test_a_ping_goes_through_the_pooler_that_the_load_goes_through(cluster: Cluster, tmp_path: Path) -> None:
    nowhere = Address(host=LOOPBACK, port=1, user="postgres", dbname="loaded")
    with pooling(cluster, mode="transaction", database="*") as folder:
        console = Address(host=str(folder), port=PORT, user="plain", dbname=CONSOLE)
        with Samplers(
            directory=tmp_path, address=nowhere, left_out=frozenset({SERVER}), is_elsewhere=True, console=console
        ) as samplers:
            wait_for_lines(tmp_path, 3)
    (gap,) = list_gaps(samplers)
    # The console is for those whom the pooler lets in.
    assert (gap.source, "if its stats_users name it" in gap.reason) == (POOLER, True)
    assert read_pooler(tmp_path).samples == ()


def test_a_ping_and_the_sampler_of_a_pooler_that_were_halted_are_gaps(cluster: Cluster, tmp_path: Path) -> None:
    with pooling(cluster, mode="transaction", database="*", more="stats_users = plain") as folder:
        console = Address(host=str(folder), port=PORT, user="plain", dbname=CONSOLE)
        with Samplers(
            directory=tmp_path, address=console, left_out=frozenset({SERVER}), is_elsewhere=True, console=console
        ) as samplers:
            wait_for_lines(tmp_path, 3)
            freezer = Freezer()
            try:
                freezer.freeze([samplers.pids["ping"], samplers.pids[POOLER]])
                from_s = time.monotonic()
                time.sleep(3.5)
                to_s = time.monotonic()
            finally:
                freezer.thaw()
            wait_for_lines(tmp_path, len(read_pings(tmp_path).began_s) + 2)
    late = {gap.source for gap in samplers.gaps if gap.reason == LATE and gap.from_s < to_s and gap.to_s > from_s}
    assert POOLER in late
    # One that was halted while it waited for an answer took long.
    assert "ping" in late or read_pings(tmp_path).round_trip_s.max() >= to_s - from_s


def test_a_ping_that_cannot_run_is_a_gap_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    with ping(tmp_path, 1) as samplers:
        pass
    (gap,) = list_gaps(samplers)
    assert gap.source == "ping"
    assert "Connection refused" in gap.reason
    assert len(read_pings(tmp_path).began_s) == 0
    (tmp_path / "ended").mkdir()
    with ping(tmp_path / "ended", PORT) as samplers:
        wait_for_lines(tmp_path / "ended", 2)
        cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgdyno-ping'")
        # It sees its end when it pings next; what is left of it is the samplers' to take.
        os.waitid(os.P_PID, samplers.pids["ping"], os.WEXITED | os.WNOWAIT)
    (gap,) = list_gaps(samplers)
    # libpq says one or the other, as the server's words or its end come first.
    assert re.search("terminating connection|server closed the connection", gap.reason)
    assert len(read_pings(tmp_path / "ended").began_s) >= 1


SCRIPT = r"""
\set n random(1, 9)
BEGIN;
\startpipeline
SELECT :n;
SELECT :n + 1;
\endpipeline
SELECT :n AS got \gset
END;
"""


def test_a_transaction_has_as_many_exchanges_as_a_proxy_sees(cluster: Cluster, tmp_path: Path) -> None:
    script = cluster.root / "mine.sql"
    script.write_text(SCRIPT)
    script.chmod(0o644)
    cluster.run("pgbench", "-i", "-q", "-h", str(cluster.root), "-p", str(PORT), "-U", "postgres", "loaded")
    rows = [
        (f"--builtin={name}", mode, count)
        for name, count in BUILTIN_EXCHANGES.items()
        for mode in ("simple", "prepared")
    ]

    def check(argument: str, mode: str, count: int | None) -> None:
        asked = []
        for transactions in (10, 30):
            output = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            with delaying((LOOPBACK, PORT), delay_s=0.0, output=output) as port:
                way = ("-h", LOOPBACK, "-p", str(port), "-U", "postgres", "loaded")
                said = cluster.run("pgbench", "-n", "-r", f"-t{transactions}", f"-M{mode}", argument, *way)
            asked += [max(one.asked_count for one in read_held(output) if one.program == "pgbench")]
        listed = count_in_script([one.text for one in parse_summary(said).statements])
        # What a connection asks at its beginning and end, it asks in both.
        assert asked[1] - asked[0] == 20 * listed
        assert count in {None, listed}

    check_rows([*rows, (f"--file={script}", "extended", 4)], lambda row: check(*row))
