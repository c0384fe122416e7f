"""A start of the program by a fork is what a start by a new Python is."""

from __future__ import annotations

import os
from pathlib import Path

from tests.ready_program import run_program


def test_a_fork_has_the_arguments_folder_environment_streams_and_exit_code_of_a_new_python(tmp_path: Path) -> None:
    (tmp_path / "pgdyno-records" / "one").mkdir(parents=True)
    environment = {**os.environ, "PGDYNO_PROGRAM": "./pgdyno", "COLUMNS": "60"}
    for words, code in ((("show", "nowhere"), 2), (("list", "--json"), 0), (("bench", "--scale", "0", "--json"), 2)):
        forked, fresh = (run_program(words, cwd=tmp_path, env=environment, prefix=way) for way in ((), ("env",)))
        assert (forked.returncode, forked.stdout, forked.stderr) == (code, fresh.stdout, fresh.stderr)
        assert fresh.returncode == code
