"""What would spoil a measurement here, cost speed, or should be known: every rule of the preflight, over facts alone.

The rules are grouped by what they look at; each is one small function that is silent where it has no evidence. A finding
is `critical` where it would spoil a measurement, `warning` where it costs speed, and a `note` where neither is sure.
They serve `pgdyno check`, and every study's report over the facts that its record keeps.
"""

from __future__ import annotations

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight import cpu as preflight_cpu
from pgdyno.explain.preflight import memory as preflight_memory
from pgdyno.explain.preflight import other_load as preflight_others
from pgdyno.explain.preflight import server as preflight_server
from pgdyno.explain.preflight import storage as preflight_storage
from pgdyno.explain.preflight.rule_input import Intent, Rule, RuleInput
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts

RULES: tuple[Rule, ...] = (
    *preflight_others.RULES,
    *preflight_server.RULES,
    *preflight_storage.RULES,
    *preflight_cpu.RULES,
    *preflight_memory.RULES,
)
# How far ahead to look where nothing is planned.
DEFAULT_HORIZON_S = 3600.0


def find_obstacles(
    host: HostFacts, facts: PreflightFacts | None = None, *, intent: Intent | None = None
) -> tuple[Finding, ...]:
    """Everything that stands between this machine and a fair measurement, worst first.

    Args:
        host: The machine.
        facts: What it was doing; None where nobody looked, as in records of old.
        intent: What is to be measured.
    """
    scene = RuleInput(host=host, facts=facts or PreflightFacts(), intent=intent or Intent(horizon_s=DEFAULT_HORIZON_S))
    order = list(Severity)
    findings = [finding for rule in RULES for finding in rule(scene)]
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def would_spoil(findings: tuple[Finding, ...]) -> bool:
    """Whether a measurement should wait."""
    return any(finding.severity is Severity.CRITICAL for finding in findings)
