"""From estimates to findings: claim, evidence, rival causes. Pure."""
