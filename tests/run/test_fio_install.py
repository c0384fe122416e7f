"""fio is installed for real: below a root of its own, which is thrown away, on a machine that has none and no lists of packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loops import needs_fio, needs_root

TREE = Path(__file__).parents[2]
# The machine's own root with a layer in memory above it, in a mount namespace of its own: nothing of it outlives the shell.
# The clone and the environment are mounted in it because they may lie on another file system, such as a /tmp in memory.
ROOT = """
set -e
mount -t tmpfs -o size=1g none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
mount -t tmpfs none "$1/root/tmp"
chmod 1777 "$1/root/tmp"
for folder in "$4" "$5"; do
    mkdir -p "$1/root$folder"
    mount -o bind,ro "$folder" "$1/root$folder"
done
exec chroot "$1/root" sh -c "$2" sh "$3"
"""
# An archive of one package, which holds the machine's own fio: apt-get needs no network, and little time to read it.
WITHOUT = r"""
set -e
mkdir -p /archive /package/DEBIAN /package/usr/bin
cp "$(command -v fio)" /package/usr/bin/fio
printf '%s\n' 'Package: fio' 'Version: 3' 'Architecture: all' 'Maintainer: none' 'Description: fio' >/package/DEBIAN/control
dpkg-deb --build /package /archive/fio.deb >/dev/null
cd /archive
cp /package/DEBIAN/control Packages
echo "Filename: ./fio.deb" >>Packages
echo "Size: $(stat -c %s fio.deb)" >>Packages
echo "SHA256: $(sha256sum <fio.deb | cut -d ' ' -f 1)" >>Packages
dpkg --no-triggers --remove fio >/dev/null 2>&1
rm -rf /var/lib/apt/lists/* /etc/apt/sources.list.d/*
! command -v fio >/dev/null || exit 9
cd /
"""
INSTALL = """exec "$1" -c 'from pgdyno.run.change.install_fio import install_fio; print(install_fio().version)'"""
# A real interrupt, sent by what is run as apt-get: it must still come to its end.
INTERRUPTING = """#!/bin/sh
kill -INT "$PPID"
sleep 1
touch "$0-ended"
"""
INSTALLED = f"{WITHOUT}echo 'deb [trusted=yes] file:/archive ./' >/etc/apt/sources.list\n{INSTALL}"
REFUSED = f"{WITHOUT}echo 'deb http://localhost:9/ none main' >/etc/apt/sources.list\n{INSTALL}"


def run_below(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A shell's script below a throw-away root; skipped where there is no such thing."""
    argv = ["unshare", "--mount", "sh", "-c", ROOT, "sh", str(folder)]
    places = [str(TREE), sys.prefix]
    try:
        subprocess.run([*argv, "true", "", *places], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"no file system over another in a mount namespace here: {exc}")
    return subprocess.run(
        [*argv, script, sys.executable, *places], check=False, capture_output=True, text=True, timeout=800, cwd="/"
    )


@needs_fio
@needs_root
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="neither Debian nor Ubuntu")
def test_fio_is_installed_where_it_is_missing(tmp_path: Path) -> None:
    done = run_below(tmp_path, INSTALLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fio-3.")


@needs_fio
@needs_root
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="neither Debian nor Ubuntu")
def test_an_archive_that_does_not_answer_is_told(tmp_path: Path) -> None:
    done = run_below(tmp_path, REFUSED)
    assert done.returncode != 0
    assert "apt-get could not install fio" in done.stderr


@needs_root
def test_ctrl_c_does_not_end_an_installation_in_the_middle(tmp_path: Path) -> None:
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(INTERRUPTING)
    apt_get.chmod(0o755)
    code = "from pgdyno.run.change.install_fio import install_fio; install_fio()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert "KeyboardInterrupt" in done.stderr
    assert (tmp_path / "apt-get-ended").exists()
