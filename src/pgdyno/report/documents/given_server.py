"""Make the published document of `pgdyno check --dsn --json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.explain.finding import Finding
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.report.documents.check import FindingDocument, describe_finding, would_spoil

GIVEN_CHECK_VERSION = 1


class GivenCheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno check --dsn --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-check-server"
    version: int = GIVEN_CHECK_VERSION
    subject: str
    would_spoil: bool
    findings: tuple[FindingDocument, ...]
    server: GivenServer


def given_check_document(subject: str, findings: Sequence[Finding], server: GivenServer) -> GivenCheckDocument:
    """Return what was seen of a server as a document."""
    return GivenCheckDocument(
        subject=subject,
        would_spoil=would_spoil(findings),
        findings=tuple(map(describe_finding, findings)),
        server=server,
    )
