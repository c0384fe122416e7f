"""Find what would disturb a measurement here, cost speed, or should be known: all preflight rules, over recorded facts.

The rules are grouped by subject; each is one small function that yields nothing if it lacks evidence. A finding is
`critical` if it would disturb a measurement, `warning` if it costs speed, and a `note` if neither is certain. The rules
serve `pgdyno check`, and the report of every study from the facts in its record.
"""

from __future__ import annotations

from pgdyno.explain.finding import Finding, Severity, worst_first
from pgdyno.explain.preflight import cpu, memory, other_load, server, shared_memory, storage, version
from pgdyno.explain.preflight.rule_input import Intent, Rule, RuleInput
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts

RULES: tuple[Rule, ...] = (
    *other_load.RULES,
    *server.RULES,
    *shared_memory.RULES,
    *version.RULES,
    *storage.RULES,
    *cpu.RULES,
    *memory.RULES,
)
# How far ahead to look if nothing is planned.
DEFAULT_HORIZON_S = 3600.0


def find_obstacles(
    host: HostFacts, facts: PreflightFacts | None = None, *, intent: Intent | None = None
) -> tuple[Finding, ...]:
    """Find everything that stands between this machine and a fair measurement, worst first.

    Args:
        host: The machine.
        facts: State of the machine; None if it was not observed, as in old records.
        intent: What is to be measured.
    """
    rule_input = RuleInput(
        host=host, facts=facts or PreflightFacts(), intent=intent or Intent(horizon_s=DEFAULT_HORIZON_S)
    )
    return worst_first(finding for rule in RULES for finding in rule(rule_input))


def should_wait(findings: tuple[Finding, ...]) -> bool:
    """Return whether a measurement should wait."""
    return any(finding.severity is Severity.CRITICAL for finding in findings)
