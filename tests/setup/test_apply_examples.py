"""The scripts of the guide that apply settings: valid for sh, honest about what was tried, and their calls to the services' tools.

No service is there: a program of the tool's name, first in PATH, records how it was called and answers.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.setup.conftest import TREE

FOLDER = TREE / "docs/guide/apply-with"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
LINES = 'shared_buffers=16384\nwal_compression=on\nlog_line=a, "b" c\n'
# One call in a line, and its arguments in square brackets.
RECORD = '#!/bin/sh\n{{ for word; do printf "[%s]" "$word"; done; echo; }} >> "$CALLS"\n{answer}\n'


def call(script: str, folder: Path, *, tool: str, answer: str = "", lines: str = LINES, **names: str) -> list[str]:
    program = folder / tool
    program.write_text(RECORD.format(answer=answer))
    program.chmod(0o755)
    calls = folder / "calls"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls), **names}
    done = subprocess.run(
        [FOLDER / script], input=lines, env=environment, text=True, capture_output=True, check=False, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    return calls.read_text().splitlines()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_valid_and_says_that_it_was_not_tried(script: Path, tmp_path: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)
    assert os.access(script, os.X_OK)
    assert "was never tried on" in "".join(script.read_text().splitlines(keepends=True)[:3])
    # Without the names that it needs, it does nothing.
    done = subprocess.run([script], env={"PATH": str(tmp_path)}, capture_output=True, input=b"a=1\n", check=False)
    assert done.returncode != 0
    assert b"names " in done.stderr


def test_a_tool_that_fails_makes_the_script_fail(tmp_path: Path) -> None:
    names = {"RDS_INSTANCE": "d", "RDS_GROUP": "g", "SQL_INSTANCE": "d", "AZ_GROUP": "g", "AZ_SERVER": "d"}
    for tool, script in (
        ("aws", "aws-rds"),
        ("gcloud", "gcloud-sql"),
        ("az", "az-postgres"),
        ("patronictl", "patronictl"),
    ):
        (tmp_path / tool).write_text("#!/bin/sh\nexit 3\n")
        (tmp_path / tool).chmod(0o755)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PATRONI_CLUSTER": "main", **names}
        done = subprocess.run([FOLDER / f"{script}.sh"], env=environment, input=b"a=1\n", check=False)
        assert done.returncode == 3, script


def test_rds(tmp_path: Path) -> None:
    answer = """case "$*" in
*shared_buffers*DataType*) echo integer ;; *wal_compression*DataType*) echo boolean ;; *DataType*) echo string ;;
*shared_buffers*ApplyType*) echo static ;; *ApplyType*) echo dynamic ;; esac"""
    calls = call("aws-rds.sh", tmp_path, tool="aws", answer=answer, RDS_INSTANCE="db1", RDS_GROUP="mine")
    changes = [line for line in calls if "modify" in line]
    head = "[rds][modify-db-parameter-group][--db-parameter-group-name][mine][--parameters]"
    assert changes == [
        head + '[[{"ParameterName":"shared_buffers","ParameterValue":"16384","ApplyMethod":"pending-reboot"}]]',
        head + '[[{"ParameterName":"wal_compression","ParameterValue":"1","ApplyMethod":"immediate"}]]',
        head + r'[[{"ParameterName":"log_line","ParameterValue":"a, \"b\" c","ApplyMethod":"immediate"}]]',
    ]
    assert calls[-2:] == [
        "[rds][reboot-db-instance][--db-instance-identifier][db1]",
        "[rds][wait][db-instance-available][--db-instance-identifier][db1]",
    ]
    (tmp_path / "calls").unlink()
    names = {"RDS_INSTANCE": "db1", "RDS_GROUP": "mine", "lines": "wal_compression=off\n"}
    calls = call("aws-rds.sh", tmp_path, tool="aws", answer=answer, **names)
    assert '"ParameterValue":"0"' in calls[-1]


def test_cloud_sql_keeps_the_flags_that_are_there(tmp_path: Path) -> None:
    answer = 'case "$*" in *describe*) printf "max_connections=200\\nwal_compression=off\\n" ;; esac'
    calls = call("gcloud-sql.sh", tmp_path, tool="gcloud", answer=answer, SQL_INSTANCE="db1")
    assert calls[0].startswith("[sql][instances][describe][db1]")
    flags = 'max_connections=200~wal_compression=on~shared_buffers=16384~log_line=a, "b" c'
    assert calls[1:] == [f"[sql][instances][patch][db1][--quiet][--database-flags=^~^{flags}]"]


def test_azure_restarts_where_a_parameter_waits(tmp_path: Path) -> None:
    answer = 'case "$*" in *shared_buffers*) echo true ;; *set*) echo false ;; esac'
    names = {"AZ_GROUP": "mine", "AZ_SERVER": "db1"}
    calls = call("az-postgres.sh", tmp_path, tool="az", answer=answer, **names)
    head = "[postgres][flexible-server][parameter][set][--resource-group][mine][--server-name][db1]"
    tail = "[--query][isConfigPendingRestart][--output][tsv]"
    assert calls == [
        f"{head}[--name][shared_buffers][--value][16384]{tail}",
        f"{head}[--name][wal_compression][--value][on]{tail}",
        f'{head}[--name][log_line][--value][a, "b" c]{tail}',
        "[postgres][flexible-server][restart][--resource-group][mine][--name][db1]",
    ]
    (tmp_path / "calls").unlink()
    assert len(call("az-postgres.sh", tmp_path, tool="az", answer=answer, lines="wal_compression=on\n", **names)) == 1


def test_patroni(tmp_path: Path) -> None:
    calls = call("patronictl.sh", tmp_path, tool="patronictl", PATRONI_CLUSTER="main", PATRONI_WAIT_S="0")
    assert calls == [
        '[edit-config][main][--force][--quiet][--pg][shared_buffers=16384][--pg][wal_compression=on][--pg][log_line=a, "b" c]',
        "[restart][main][--pending][--force]",
    ]
