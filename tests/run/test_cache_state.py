"""The state of the caches when a trial begins: what a cold one has dropped, and one as it is has not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pgdyno.run.own_server import OwnServer
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import CacheState
from tests.homes import installation_of, some_home


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
@pytest.mark.skipif(shutil.which("fincore") is None, reason="fincore of util-linux is not installed")
def test_only_a_cold_cache_has_nothing_of_the_tables(tmp_path: Path) -> None:
    with some_home() as home:
        server = OwnServer(installation=installation_of(18, home), home=home)
        server.load(DataSpec(), 1, settings={}, output_dir=tmp_path, on_activity=lambda _: None)
        server.reset()
        with server.running({}, log_path=tmp_path / "log"):
            with server.connect() as connection:
                row = connection.execute("SELECT pg_relation_filepath('pgbench_accounts') AS path").fetchone()
                assert row is not None
            table = home.data / row["path"]
            for state, is_restarted in [(CacheState.WARM, False), (CacheState.ASIS, False), (CacheState.COLD, True)]:
                pid = server.pid
                server.prepare_cache(state)
                assert (server.pid != pid) is is_restarted, state
                # Where memory is short, the kernel may drop pages of a warm table, too.
                assert state is not CacheState.COLD or count_cached(table) == 0
            server.prepare_cache(CacheState.ASIS)
            assert count_cached(table) == 0, "nothing was read for it"


def count_cached(path: Path) -> int:
    """Count the pages of a file in the kernel's cache."""
    argv = ["fincore", "--raw", "--noheadings", "--output", "PAGES", str(path)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
