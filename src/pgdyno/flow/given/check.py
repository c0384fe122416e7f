"""`pgdyno check --dsn`: connect to a server, change nothing, and say what its role sees, may do, and lacks."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.given.server import DEFAULT_CLIENTS, name_left_settings
from pgdyno.errors import ExitCode
from pgdyno.explain.finding import Finding
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.explain.preflight.rules import should_wait
from pgdyno.flow.terminal import print_document
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.run.given import conninfo
from pgdyno.run.given.probe import watch_server
from pgdyno.run.preflight import watch_machine


class GivenCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a server."""

    server: GivenServer
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if a finding would invalidate a measurement."""
        return ExitCode.PROBLEM_FOUND if should_wait(self.findings) else ExitCode.OK

    def to_json(self) -> bytes:
        """Return the check as a JSON document."""
        from pgdyno.report.documents.check import given_check_document  # noqa: PLC0415 - each form loads what it needs
        from pgdyno.report.sections.conditions.given_server import describe_given  # noqa: PLC0415

        return msgspec.json.encode(given_check_document(describe_given(self.server), self.findings, self.server))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.sections.conditions.given_server import build_given_check  # noqa: PLC0415

        return print_document(build_given_check(self.server, self.findings))


def check_given(dsn: str, *, clients: int | None) -> GivenCheck:
    """Look at a server through one role's connection.

    Args:
        dsn: The connection string, as psql takes it.
        clients: Of a load that is meant.

    Raises:
        SpecError: It is no connection string.
        HostError: The server is of a version that is not supported.
        StepFailedError: There is no connection, or it was lost.
    """
    server, activity = watch_machine(lambda: watch_server(dsn))
    findings = find_given_obstacles(
        server,
        clients=DEFAULT_CLIENTS if clients is None else clients,
        has_password=conninfo.has_password(dsn),
        left=name_left_settings(server),
        activity=activity,
    )
    return GivenCheck(server=server, findings=findings)
