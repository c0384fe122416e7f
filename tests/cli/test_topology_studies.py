"""The studies of topologies that pgdyno ships run, shortened, until every variant had its turn; Ctrl-C then leaves nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec
import pytest

from pgdyno.spec.read import format_study, read_study
from pgdyno.spec.study import Study
from tests.cli.test_compare_given import start
from tests.cli.test_pooler import list_processes
from tests.homes import reachable_folder

pytestmark = pytest.mark.cluster


def shorten(study: Study) -> Study:
    """The same with its last load alone, on few data, in short trials."""
    replace = msgspec.structs.replace
    return replace(
        study,
        data=replace(study.data, scale=1),
        workload=study.workload[-1:],
        trials=replace(study.trials, duration=study.trials.duration and "1s", warm_up="1s"),
        experiment=replace(study.experiment, minutes=3.0),
    )


def list_seen(record: Path) -> set[str]:
    """The variants that had a slice that ended."""
    lines = (
        line for path in record.glob("trials/*/slices.jsonl") for line in path.read_bytes().splitlines(keepends=True)
    )
    return {msgspec.json.decode(line)["arm"] for line in lines if line.endswith(b"\n")}


@pytest.mark.parametrize("name", ["synchronous-quorum", "pooler-clients"])
def test_shipped_studies_run(tmp_path: Path, name: str) -> None:
    study = shorten(read_study(Path(name)))
    (tmp_path / "short.toml").write_text(format_study(study))
    record = tmp_path / "record"
    with reachable_folder() as folder:
        home = folder / "home"
        child = start(tmp_path, "run", "short.toml", "--home", str(home), "--out", str(record), "--yes", "--quiet")
        while list_seen(record) != {variant.title for variant in study.variant}:
            assert child.poll() is None, child.communicate()
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate()
        assert child.returncode == 130, err
        assert list_processes(home) == ""
