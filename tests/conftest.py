"""What every room's tests share: golden files, their order, and that CI never skips the tests on a real server."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.examples import TIMES
from tests.hosts import Sshd, running_sshd
from tests.pauses import PausePlugin
from tests.shared import open_shared_folder, spread_folders


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption(
        "--pauses", type=int, metavar="SEED", help="pause tests at random places, to find what may fail by chance"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes that file under --update-golden."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path.name}; --update-golden accepts it"

    return compare


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for all tests of a session."""
    with running_sshd(tmp_path_factory.mktemp("sshd")) as daemon:
        yield daemon


@pytest.fixture
def by_ssh(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """Let ssh reach the machines of `sshd`, from this process and its children."""
    monkeypatch.setenv("PATH", sshd.path)
    return sshd


@pytest.fixture(scope="session", autouse=True)
def spread_tmp_paths(tmp_path_factory: pytest.TempPathFactory) -> None:
    spread_folders(tmp_path_factory.getbasetemp())


def _is_ci() -> bool:
    return os.environ.get("CI") == "true"


def pytest_configure(config: pytest.Config) -> None:
    # Workers inherit it.
    config.add_cleanup(open_shared_folder())
    # How long an example takes is the machine's affair.
    patient = hypothesis.settings(
        deadline=None, max_examples=100 * TIMES, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.register_profile("patient", patient)
    hypothesis.settings.load_profile("patient")
    # A shell that starts the tests in the background, or nohup, has them ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Else each of the hundreds of programs that tests start compiles all of its source anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # As many workers as fit the CPUs are at work already: more threads would only wait for each other, and spin meanwhile.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if (seed := config.getoption("--pauses")) is not None:
        config.pluginmanager.register(PausePlugin(seed))
    if _is_ci() and (config.option.markexpr or config.option.keyword or config.option.deselect):
        raise pytest.UsageError("CI may not leave out tests")


def pytest_sessionstart() -> None:
    """Give tests a terminal that does not depend on the caller's: those that draw on one say themselves what it can do."""
    # Not before pytest has read them.
    os.environ["TERM"] = "xterm-256color"
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, and keep what is there from being looked through all along."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole programs, browsers and servers first, simulations next: no long file begins when all the others are done.

    How long a file takes is guessed from how many of its tests start a server.
    """
    rooms = ("cli", "setup", "report", "run", "flow", "tune", "facts", "analyse")
    # They change the same settings of the machine: side by side, one would wait for the other.
    apart = {"test_apply.py": -1, "test_apply_killed.py": 1}
    servers = Counter(item.path for item in items if item.get_closest_marker("cluster"))

    def place(item: pytest.Item) -> tuple[int, int, int]:
        room = item.path.parent.name
        return (*rooms, room).index(room), apart.get(item.path.name, 0), -servers[item.path]

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    report = yield
    if _is_ci() and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("cluster"):
        report.outcome = "failed"
        report.longrepr = f"CI may not skip a test on a real server: {report.longrepr}"
    return report
