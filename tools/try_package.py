"""Install the Debian package that deploy/debian/build made into a bare Debian root, measure as an ordinary account, and remove it.

Needs root, mmdebstrap, and Debian's packages.

    python tools/try_package.py dist/pgdyno_0.3.0_amd64.deb [--suite bookworm] [--root ARCHIVE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bare_root import SHORT_BENCH, BareRoot, make_archive, unpack

_ACCOUNT, _HOME, _PACKAGE = "dba", "/home/dba", "/srv/pgdyno.deb"


def main() -> None:
    """Carry out all steps.

    Raises:
        RuntimeError: One failed, or removing the package left something.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--suite", default="bookworm", help="of Debian: that on which the package was built")
    parser.add_argument("--root", type=Path, help="an archive of such a root, in place of a new one")
    options = parser.parse_args()
    with make_archive(options.suite, [], made=options.root) as archive, unpack(archive) as root:
        root.copy_in(options.package, _PACKAGE)
        install(root)
        root.run("useradd", "--create-home", _ACCOUNT)
        root.run("pgdyno", *SHORT_BENCH, user=_ACCOUNT, folder=_HOME, environment={"HOME": _HOME})
        record = root.path / _HOME.lstrip("/") / "record"
        trial, study = (json.loads((record / name).read_bytes()) for name in ("trials/0001/trial.json", "record.json"))
        root.run("apt-get", "purge", "--yes", "pgdyno")
        left = [name for name in ("opt/pgdyno", "usr/bin/pgdyno") if (root.path / name).exists()]
        if (trial["status"], study["command"][0], left) != ("finished", "pgdyno", []):
            raise RuntimeError(f"trial {trial['status']}, command {study['command']}, left: {left}")
    sys.stdout.write("installed, measured and removed\n")


def install(root: BareRoot) -> None:
    """Install the package with what it needs."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    root.run("apt-get", "update", environment=quiet)
    root.run("apt-get", "install", "--yes", "--no-install-recommends", _PACKAGE, environment=quiet)


if __name__ == "__main__":
    main()
