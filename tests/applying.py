"""What tests of applied settings have in common: a server, a kernel and a disk that are seen to be as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgdyno.run.change.journal import Journal
from pgdyno.run.change.prepare_apply import Prepared, find_named_server, prepare_apply
from pgdyno.run.change.server_conf import NAME
from pgdyno.run.change.sysfs import ROOT, read_value, reset_with, write_values
from tests.sysctls import SETTING, machine_settings, own_network, read_sysctl
from tests.tools.pgcluster import Cluster, running

# Of a network of our own, and a pair that only counts where memory is not overcommitted.
SYSCTLS = {SETTING: "1000", "vm.overcommit_kbytes": "50000000"}
_PAIR = ("vm.overcommit_ratio", "vm.overcommit_kbytes")
RELOADED = {"work_mem": "12MB", "random_page_cost": "1.1", "log_line_prefix": "it's %m "}
RESTARTED = {"shared_buffers": "48MB", "max_connections": "37"}
CONF = "huge_pages = off\n"
"""A pool that somebody has on this machine is not what these tests are about: who holds pages of it need not wait."""

OLD_CONF = b"# by hand\nwork_mem = '9MB' # spare\nTimezone = 'UTC'\n\n"


def find_loop() -> dict[str, str]:
    """Settings of a loop device that nobody uses: nothing else of a machine's disks is as safe to change."""
    for disk in sorted((ROOT / "block").glob("loop*"), reverse=True):
        if (disk / "size").read_text().strip() == "0" and "mq-deadline" in (disk / "queue/scheduler").read_text():
            queue = f"block/{disk.name}/queue"
            return {f"{queue}/read_ahead_kb": "260", f"{queue}/scheduler": "mq-deadline"}
    return {}


SYSFS = find_loop()


@contextlib.contextmanager
def kept_disk() -> Iterator[None]:
    """The disk as it was afterwards, also what another scheduler resets."""
    before = {name: read_value(name) for name in SYSFS}
    before |= {name: read_value(name) for scheduler in SYSFS for name in reset_with(scheduler)}
    try:
        yield
    finally:
        write_values(dict(sorted(before.items(), key=lambda item: not item[0].endswith("scheduler"))))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A server that is its own, with a journal and a folder for sysctls that are."""

    cluster: Cluster
    folder: Path

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / "journal")

    @property
    def sysctl_file(self) -> Path:
        return self.folder / "sysctl.d/60-pgdyno.conf"

    @property
    def tmpfiles_file(self) -> Path:
        return self.folder / "tmpfiles.d/60-pgdyno.conf"

    @property
    def conf(self) -> Path:
        return self.cluster.data / NAME

    def prepare(
        self,
        settings: dict[str, str],
        *,
        sysctls: dict[str, str] | None = None,
        sysfs: dict[str, str] | None = None,
    ) -> Prepared:
        server = find_named_server(self.cluster.data, bindir=self.cluster.bin_directory)
        return prepare_apply(server, settings=settings, sysctls=sysctls or {}, sysfs=sysfs or {}, etc=self.folder)

    def show(self, *names: str) -> tuple[str, ...]:
        return tuple(self.cluster.sql(f"SHOW {name}") for name in names)

    def state(self) -> dict[str, object]:
        """All that a tuning of these tests touches."""
        names = ", ".join(f"'{name}'" for name in (*RELOADED, *RESTARTED))
        kernel = {name: read_sysctl(name) for name in (SETTING, *_PAIR)}
        disk = {name: (ROOT / name).read_text() for name in SYSFS}
        disk |= {name: (ROOT / name).with_name("nr_requests").read_text() for name in SYSFS}
        facts = self.conf.stat()
        return {
            "conf": (self.conf.read_bytes(), facts.st_uid, facts.st_gid, facts.st_mode),
            "files": sorted(path.name for path in self.cluster.data.glob("*conf*")),
            "hidden": sorted(path.name for path in self.cluster.data.glob(".*")),
            "at boot": {str(path): path.read_bytes() for path in self.folder.glob("*.d/*")},
            "hidden at boot": sorted(map(str, self.folder.glob("*.d/.*"))),
            "shown": self.cluster.sql(
                f"SELECT name, setting, pending_restart FROM pg_settings WHERE name IN ({names})"
            ),
            **kernel,
            **disk,
        }

    def is_forgotten(self) -> bool:
        """Whether the journal holds nothing of a tuning."""
        saved = self.journal.folder / "saved"
        return self.journal.read_tuning() is None and not (saved.exists() and list(saved.iterdir()))


@contextlib.contextmanager
def some_bench(version_major: int, folder: Path) -> Iterator[Bench]:
    """A running server with something in its postgresql.auto.conf, and a machine that is put back whatever happens."""
    with own_network(), machine_settings(*_PAIR), kept_disk(), running(version_major, conf=CONF) as cluster:
        bench = Bench(cluster=cluster, folder=folder)
        for at_boot in (bench.sysctl_file, bench.tmpfiles_file):
            at_boot.parent.mkdir()
        bench.conf.write_bytes(OLD_CONF)
        cluster.sql("SELECT pg_reload_conf()")
        yield bench


needs_loop = pytest.mark.skipif(not SYSFS, reason="there is no loop device that nobody uses")
