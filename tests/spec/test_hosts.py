from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.spec.hosts import HostEntry, HostRole, make_named_hosts, read_hosts
from tests.rows import check_rows

HEAD = '[hosts.db]\nrole = "server"\n'
STUDY = '[[workload]]\nname = "tpcb-like"\n'
BAD = {
    HEAD: "line 1: host db: ssh is missing",
    '[hosts.db]\nssh = "db1"\n': "line 1: host db: role is missing",
    '[hosts.db]\nrole = "pooler"\nssh = "db1"\n': "line 2: role pooler of db does nothing here",
    f'{HEAD}ssh = "db1"\npgbench = "/opt/pgbench"\n': "line 4: host db: pgbench runs on hosts with the role load",
    '[hosts.db]\nrole = "load"\nssh = "db1"\npgbench = "-x"\n': "line 4: host db: pgbench '-x' names no program",
    '[hosts."../db"]\nrole = "load"\nssh = "db1"\n': "'../db' cannot name a host",
    f'{HEAD}ssh = "-oProxyCommand=id"\n': "line 3: host db: ssh '-oProxyCommand=id' is no destination",
    f'{HEAD}ssh = "db1 id"\n': "line 3: host db: ssh 'db1 id' is no destination",
    f"{HEAD}ssh = 'db1$(id)'\n": "line 3: host db: ssh 'db1$(id)' is no destination",
    f'{HEAD}ssh = "db1\\u001b"\n': "line 3: host db: ssh 'db1\\x1b' is no destination",
    f'{HEAD}ssh = "db1"\npyton = "x"\n': "line 4: host db: unknown key pyton",
    f'{HEAD}ssh = "db1"\npython = "-c"\n': "line 4: host db: python '-c' names no program",
    f"{HEAD}ssh = 5\n": "line 3: host db: ssh: expected text in quotes",
    "hosts = 3\n": "hosts is no table",
    "[hosts]\ndb = 3\n": "host db: ",
    "[server]\n": "unknown key server",
    "x": "is not valid TOML",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def test_hosts_are_read_from_a_file_of_their_own_and_from_a_study(tmp_path: Path) -> None:
    entry = HostEntry(role=HostRole.SERVER, ssh="postgres@db1", python="/opt/python3")
    table = f'{HEAD}ssh = "postgres@db1"\npython = "/opt/python3"\n'
    assert read_hosts(write(tmp_path, table)) == {"db": entry}
    assert read_hosts(write(tmp_path, table + STUDY)) == {"db": entry}
    assert read_hosts(write(tmp_path, STUDY)) == {}
    with pytest.raises(SpecError, match="cannot read the hosts") as caught:
        read_hosts(tmp_path / "none.toml")
    assert caught.value.hint


def test_machines_that_a_command_line_names_have_their_roles() -> None:
    hosts = make_named_hosts("db1", ["db1", "admin@load2"])
    assert {name: (one.role, one.ssh) for name, one in hosts.items()} == {
        "server-db1": (HostRole.SERVER, "db1"),
        "db1": (HostRole.LOAD, "db1"),
        "admin@load2": (HostRole.LOAD, "admin@load2"),
    }
    assert make_named_hosts(None) == {}
    # The server's machine may be named as no file can be.
    assert [*make_named_hosts("ssh://me@db1:22", ["load"])] == ["ssh---me@db1-22", "load"]
    for named in (["load1", "load1"], ["load/1"]):
        with pytest.raises(SpecError) as caught:
            make_named_hosts(None, named)
        assert caught.value.hint


def test_a_wrong_host_is_refused_with_its_line(tmp_path: Path) -> None:
    def check(text: str) -> None:
        with pytest.raises(SpecError) as caught:
            read_hosts(write(tmp_path, text))
        assert BAD[text] in caught.value.fact
        assert caught.value.hint

    check_rows(BAD, check)
