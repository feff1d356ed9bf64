"""What one health check found, and the rule that decides about the node.

Pure. Not covered: whether the reason was rightly told; each check answers for its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer.errors import ContextBroken, NodeUnhealthy


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """What it looks at is not there: nothing is known, which is no pass."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    reason: str
    is_of_process: bool = False
    """A failure that a new process on the same node may not meet."""

    seconds: float = 0.0


def passed(check: str, reason: str) -> Finding:
    return Finding(check, Verdict.PASSED, reason)


def failed(check: str, reason: str) -> Finding:
    return Finding(check, Verdict.FAILED, reason)


def skipped(check: str, reason: str) -> Finding:
    return Finding(check, Verdict.SKIPPED, reason)


def failures(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is Verdict.FAILED]


def refuse_unhealthy(findings: Sequence[Finding], *, node: str) -> None:
    """Return if nothing failed; one broken thing that outlives this process condemns the node.

    Raises:
        NodeUnhealthy: another node may do.
        ContextBroken: another process on this node may do.
    """
    bad = failures(findings)
    if not bad:
        return
    reasons = "; ".join(f"{finding.check}: {finding.reason}" for finding in bad)
    if all(finding.is_of_process for finding in bad):
        raise ContextBroken(f"node {node}: {reasons}")
    raise NodeUnhealthy(f"node {node}: {reasons}")
