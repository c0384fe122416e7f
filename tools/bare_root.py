"""A bare Debian root made by mmdebstrap, to install pgdyno into and run it from; needs root.

What runs in it has namespaces of its own for mounts and processes, as in a container, so that nothing outlives the call. It has this
machine's network, resolver and certificates, and pip's settings of this machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Beside those of the root, which its package writes again.
_COPIED_CERTIFICATES = "/etc/certificates-of-this-machine.crt"
_OF_THIS_MACHINE = (Path("/etc/resolv.conf"), Path("/etc/pip.conf"))
_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# One short trial, without a disk card.
SHORT_BENCH = (
    *("bench", "--stock-only", "--no-disk", "--workload", "select-only", "--scale", "1", "--clients", "2"),
    *("--rounds", "1", "--duration", "1s", "--warm-up", "0s", "--out", "record"),
)
# In mount and process namespaces of its own: proc, sys, devices and a /dev/shm, then the program in the root.
_ENTER = """
set -e
root=$1 writable=$2; shift 2
# Else no mount is called / in it, and no disk is found.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
for device in null zero full random urandom tty; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t tmpfs -o mode=1777,size=1g shm "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
if [ -n "$writable" ]; then
  mount --bind "$root$writable" "$root$writable"
  mount -t tmpfs -o mode=1777 tmp "$root/tmp"
  mount -o remount,bind,ro "$root"
fi
exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class BareRoot:
    """A Debian root in a folder."""

    path: Path

    def copy_in(self, source: Path, target: str, *, but: str = "") -> None:
        """Copy a file or a folder into the root, readable by all, but for files and folders of a name."""
        place = self.path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(but))
        else:
            shutil.copyfile(source, place)
        subprocess.run(["chmod", "--recursive", "a+rX", place], check=True)

    def start(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        environment: Mapping[str, str] | None = None,
        groups: Sequence[Path] = (),
        writable: str = "",
        stdout: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program in the root.

        Args:
            argv: Its command line.
            user: An account of the root, or UID:GID.
            folder: Where it begins.
            environment: In addition to PATH and a UTF-8 locale.
            groups: Control groups that it belongs to.
            writable: A folder of the root; then all others but /tmp and /dev/shm are read-only.
            stdout: As for Popen.
        """
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        if (self.path / _COPIED_CERTIFICATES.lstrip("/")).exists():
            passed["PIP_CERT"] = _COPIED_CERTIFICATES
        own = {"PATH": _PATH, "LANG": "C.UTF-8", **passed, **(environment or {})}
        words = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in own.items()), *argv]
        begin = f"cd {shlex.quote(folder)} && exec {shlex.join(words)}"
        chroot = ["chroot", f"--userspec={user}", self.path, "/bin/sh", "-c", begin]
        join = "".join(f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))}; " for group in groups)
        unshare = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            _ENTER,
            "sh",
            self.path,
            writable,
            *chroot,
        ]
        return subprocess.Popen(
            ["sh", "-c", f'{join}exec "$@"', "sh", *unshare],
            env={"PATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            text=True,
        )

    def run(self, *argv: str, **options: object) -> None:
        """Run a program in the root; options as for `start`.

        Raises:
            RuntimeError: It failed.
        """
        with self.start(argv, **options) as process:  # type: ignore[arg-type]
            code = process.wait()
        if code:
            raise RuntimeError(f"{shlex.join(argv)} in {self.path} ended with {code}")


@contextlib.contextmanager
def make_archive(suite: str, packages: Sequence[str], *, made: Path | None = None) -> Iterator[Path]:
    """Make an archive of a Debian root with packages and what they need, and remove it in the end; or take one made before."""
    if made is not None:
        yield made
        return
    with tempfile.TemporaryDirectory(prefix="pgdyno-root-", dir="/var/tmp") as folder:
        archive = Path(folder) / "root.tar"
        named = [f"--include={','.join(packages)}"] if packages else []
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", *named, suite, archive], check=True)
        yield archive


@contextlib.contextmanager
def unpack(archive: Path) -> Iterator[BareRoot]:
    """Unpack a root into a folder of its own, and remove it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-root-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
        root = BareRoot(path=folder)
        for file in _OF_THIS_MACHINE:
            if file.exists():
                root.copy_in(file, str(file))
        if _CERTIFICATES.exists():
            root.copy_in(_CERTIFICATES, _COPIED_CERTIFICATES)
        yield root
    finally:
        # Mounts were in namespaces that have ended; --one-file-system is for the case that they have not.
        subprocess.run(["rm", "--recursive", "--force", "--one-file-system", folder], check=True)
