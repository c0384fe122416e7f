"""What a pooler's sampler wrote is read by the names of its columns, whole lines only."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.record.samples.pooler import POOLER_FILE, find_end, read_pooler

# Of PgBouncer 1.18, with columns left out that are not read.
HEADER = b'{"format":1,"kind":"pooler","version":"PgBouncer 1.18.0"}\n'
LINE = (
    b'{"t":12206.2,"stats":[{"database":"pgdyno","total_xact_count":5551,"total_query_count":5552,"total_wait_time":5915022}],'
    b'"pools":[{"database":"pgdyno","user":"a","cl_active":3,"cl_waiting":2,"sv_active":5,"sv_idle":0},'
    b'{"database":"pgdyno","user":"b","cl_active":1,"cl_waiting":0,"sv_active":1,"sv_idle":4}]}\n'
)


def test_rows_of_several_users_add_up_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / POOLER_FILE).write_bytes(HEADER + LINE + b'{"t":1.0,"end":"signal 15"}\n' + LINE[:40])
    read = read_pooler(tmp_path)
    assert read.version == "PgBouncer 1.18.0"
    (one,) = read.samples
    assert (one.t_s, one.transactions, one.queries, one.wait_us) == (12206.2, 5551, 5552, 5915022)
    assert (one.waiting_clients, one.active_servers) == (2, 6)


def test_the_mode_is_known_where_all_pools_have_one(tmp_path: Path) -> None:
    def line(*modes: str) -> bytes:
        pools = ",".join(f'{{"database":"x","pool_mode":"{mode}"}}' for mode in modes)
        return f'{{"t":1.0,"stats":[],"pools":[{pools}]}}\n'.encode()

    for modes, known in ((("session", "session"), "session"), (("session", "transaction"), None), ((), None)):
        (tmp_path / POOLER_FILE).write_bytes(HEADER + line() + line(*modes))
        assert read_pooler(tmp_path).mode == known


def test_columns_that_a_pooler_lacks_are_none(tmp_path: Path) -> None:
    (tmp_path / POOLER_FILE).write_bytes(HEADER + b'{"t":1.0,"stats":[{"database":"x"}],"pools":[]}\n')
    (one,) = read_pooler(tmp_path).samples
    assert (one.queries, one.wait_us, one.waiting_clients) == (None, None, None)


def test_files_that_are_no_samples_are_said_to_be(tmp_path: Path) -> None:
    for content in (b"", b'{"format":1}\n', b"no JSON\n"):
        (tmp_path / POOLER_FILE).write_bytes(content)
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            read_pooler(tmp_path)


def test_the_reason_for_ending_is_in_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / POOLER_FILE
    for content, reason in ((HEADER + b'{"t":1.0,"end":"failed: not allowed"}\n', "failed: not allowed"), (HEADER, "")):
        path.write_bytes(content)
        assert find_end(path) == reason
