"""Tell what would spoil a measurement on a server of the user's, and refuse what must not be loaded."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.given_rules import IN_USE


def tell_or_refuse(found: Sequence[Finding], *, is_busy_allowed: bool, ui: Ui) -> None:
    """Show what was found, worst first.

    Raises:
        HostError: The server must not be loaded.
    """
    refused = _find_refused(found, is_busy_allowed=is_busy_allowed)
    for finding in found:
        # What refuses the study is printed once, as its error.
        if finding.severity is not Severity.NOTE and finding is not refused:
            ui.show_finding(finding)
    if refused is None:
        return
    if refused.severity is Severity.CRITICAL:
        raise HostError(refused.claim.rstrip("."), detail=refused.evidence, hint=refused.advice)
    raise HostError(
        refused.claim.rstrip("."),
        detail=f"{refused.evidence}. {refused.why}",
        hint=f"{refused.advice} `--allow busy` loads it all the same.",
    )


def _find_refused(found: Sequence[Finding], *, is_busy_allowed: bool) -> Finding | None:
    critical = (finding for finding in found if finding.severity is Severity.CRITICAL)
    in_use = (finding for finding in found if finding.rule in IN_USE and not is_busy_allowed)
    return next(critical, None) or next(in_use, None)
