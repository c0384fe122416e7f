"""Load the user's own SQL file into a database of pgdyno's own, by the psql that comes with pgdyno."""

from __future__ import annotations

import re
from pathlib import Path

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.record.durable import writing
from pgdyno.run.load.argv import connect_options
from pgdyno.run.load.generator import InitOutcome
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.process import ShouldAbort, poll_until_done, running_pgbench
from pgdyno.run.postgres.address import Address

_PSQL = "psql"
# From here on psql refuses its own commands, wherever they stand in a line: none of them names another database. What would lift
# that is the same key, which psql itself gets from the kernel: no file, argument or variable holds it. Without one psql ends here.
_RESTRICT = "\\restrict `cat /proc/sys/kernel/random/uuid`"
# As `pgbench -i` does: trials begin with statistics and a visibility map.
_VACUUM = "VACUUM (ANALYZE)"
# The connection was lost. Source: PostgreSQL 18 manual, psql, "Exit Status".
_LOST = 2
_REFUSED = "backslash commands are restricted"
_ERROR = re.compile(r"^(psql:|ERROR:|FATAL:)", re.MULTILINE)


def run_init_file(
    address: Address, file: Path, generator: Pgbench, *, directory: Path, should_abort: ShouldAbort
) -> InitOutcome:
    """Run an SQL file to its end or to its first error. Call this from the main thread.

    Args:
        address: The server, and a database that is dropped if this fails.
        file: As `read_init_lines` yields it.
        generator: Whose programs, account and libpq are used.
        directory: Made if missing; gets both outputs and `psql.json`.
        should_abort: As in `LoadGenerator.run_load`.

    Raises:
        SpecError: A statement failed: `detail` has the file's name, the line and the server's own words.
        StepFailedError: The connection was lost.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    argv = build_psql_argv(address, file, generator.installation.program(_PSQL))
    with running_pgbench(
        argv,
        generator.user,
        directory,
        on_line=lambda _: None,
        name=_PSQL,
        inherited=address.inherited,
        libpq=generator.libpq,
    ) as running:
        done = poll_until_done(running, should_abort=should_abort)
    if done.exit_code != 0:
        said = (directory / f"{_PSQL}.stderr").read_text(errors="replace").replace(str(file), file.name)
        *_, begin = (0, *(found.start() for found in _ERROR.finditer(said)))
        words = said[begin:].strip() or f"exit code {done.exit_code}"
        kind = StepFailedError if done.exit_code == _LOST or done.exit_code < 0 else SpecError
        correct = "say it in SQL, since commands of psql are not run" if _REFUSED in words else "correct the file"
        raise should_abort() or kind(
            f"{file.name} fails",
            detail=words.removeprefix("psql:"),
            hint=f"{correct}; its database is dropped, and nothing was measured" if kind is SpecError else "",
        )
    return InitOutcome(invocation=done, total_s=done.end_monotonic_s - done.start_monotonic_s, steps_s={})


def build_psql_argv(address: Address, file: Path, program: str) -> tuple[str, ...]:
    """Build the command line that runs an SQL file in one session, and then vacuums what it made."""
    return (
        program,
        "--no-psqlrc",
        "--no-password",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--output=/dev/null",
        f"--command={_RESTRICT}",
        f"--file={file}",
        f"--command={_VACUUM}",
        *connect_options(address),
    )
