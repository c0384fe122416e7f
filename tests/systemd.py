"""A real systemd that is ours: it is process 1 of its own namespaces, beside whatever runs this machine.

Its units lie in a folder, it shares the machine's files but for /run, and all that it started ends with it. It needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

_SYSTEMD = Path("/lib/systemd/systemd")
_GROUPS = Path("/sys/fs/cgroup")
# Of the machine's kernel settings it would raise some, and make folders in its control groups. From those of each controller that it
# finds in /proc/cgroups it would remove the groups without a process, other tests' among them.
_BOOT = """
echo $$ > "$GROUP/cgroup.procs" || exit 1
exec unshare --mount --pid --fork --kill-child --mount-proc --ipc --uts --cgroup /bin/sh -ec '
  mount --make-rprivate /
  mount -t tmpfs tmpfs /run
  mkdir -p /run/systemd/system
  mount --bind /proc/sys /proc/sys
  mount -o remount,bind,ro /proc/sys
  [ ! -e /proc/cgroups ] || mount --bind /dev/null /proc/cgroups
  if [ "${GROUP%/systemd/*}" = "$GROUP" ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
  else
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  fi
  exec env container=pgdyno SYSTEMD_UNIT_PATH=$UNITS $SYSTEMD --system --unit=pgdyno.target --log-target=null --show-status=no
'
"""
_TARGET = "[Unit]\nDefaultDependencies=no\nAllowIsolate=yes\n"

needs_systemd = pytest.mark.skipif(
    os.geteuid() != 0 or not _SYSTEMD.exists() or shutil.which("nsenter") is None,
    reason="only root can start a systemd of its own, where there is one",
)


class Systemd:
    """A running one."""

    def __init__(self, pid: int, units: Path) -> None:
        self._enter = ("nsenter", f"--target={pid}", "--mount", "--pid", "--cgroup")
        self._units = units

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program beside its units."""
        return subprocess.run([*self._enter, *argv], check=False, capture_output=True, text=True, timeout=600)

    def write_unit(self, name: str, text: str) -> None:
        """A service of this name, known but not started."""
        (self._units / name).write_text(f"[Unit]\nDefaultDependencies=no\n[Service]\n{text}", encoding="utf-8")
        assert self.run("systemctl", "daemon-reload").returncode == 0

    def control(self, verb: str, unit: str) -> None:
        """Start, stop or kill a unit."""
        done = self.run("systemctl", verb, unit)
        assert done.returncode == 0, done.stderr

    def main_pid(self, unit: str) -> int:
        """Of the unit's main process, in the namespace; 0 when it does not run."""
        return int(self.run("systemctl", "show", "--property=MainPID", "--value", unit).stdout)


@contextlib.contextmanager
def booted(units: Path) -> Iterator[Systemd]:
    """Boot a systemd that knows the units of a folder; skips where the machine cannot."""
    (units / "pgdyno.target").write_text(_TARGET, encoding="utf-8")
    root = _GROUPS / "systemd" if (_GROUPS / "systemd").exists() else _GROUPS
    if not (root / "cgroup.procs").exists():
        pytest.skip("no control groups that systemd could use are mounted here")
    group = root / f"pgdyno-test-{os.getpid()}"
    group.mkdir()
    environment = {**os.environ, "UNITS": f"{units}:", "SYSTEMD": str(_SYSTEMD), "GROUP": str(group)}
    boot = subprocess.Popen(["/bin/sh", "-c", _BOOT], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        first: list[str] = []

        def has_child() -> bool:
            first[:] = Path(f"/proc/{boot.pid}/task/{boot.pid}/children").read_text().split()
            return bool(first)

        # Where it cannot start, the child is gone soon.
        assert wait_until(lambda: boot.poll() is not None or has_child())
        if first:
            systemd = Systemd(int(first[0]), units)
            wait_until(
                lambda: boot.poll() is not None or "running" in systemd.run("systemctl", "is-system-running").stdout
            )
        if boot.poll() is not None:
            pytest.skip(f"no systemd starts in namespaces here: {boot.stderr.read() if boot.stderr else ''}")
        yield systemd
    finally:
        boot.kill()
        boot.communicate()
        _remove(group)


def _remove(group: Path) -> None:
    # Those who were killed leave it a moment later.
    def is_gone() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not group.exists()

    assert wait_until(is_gone)
