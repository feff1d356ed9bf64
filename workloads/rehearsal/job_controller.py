"""What the Job controller of Kubernetes decides when a pod ends: replace it, fail, or complete.

Pure: exit codes in, decisions out. The rules are those measured on a real
controller: an index backs off 10, 20, 40 ... 360 s, never resets, and a failure
that the policy ignores is not counted but still backs off. A pod counts as
ended when the last of its processes is gone, which is what the replacement
policy ``Failed`` asks for. ``TerminatingOrFailed`` would differ only for a pod
that is deleted while its Job goes on, and nothing here deletes one.

Not covered: evictions and lost nodes (the pod conditions of a failure policy).
"""

from dataclasses import dataclass, replace
from enum import StrEnum

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 360.0


class FailureAction(StrEnum):
    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


class Verdict(StrEnum):
    """How a Job ends, in the words of its own status."""

    COMPLETE = "CompletionsReached"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    MAX_FAILED_INDEXES = "MaxFailedIndexesExceeded"
    FAILED_INDEXES = "FailedIndexes"


class Phase(StrEnum):
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExitCodeRule:
    action: FailureAction
    exit_codes: frozenset[int]
    is_negated: bool = False
    """True for the operator ``NotIn``."""

    def matches(self, exit_code: int) -> bool:
        return (exit_code in self.exit_codes) is not self.is_negated


@dataclass(frozen=True, slots=True)
class JobPolicy:
    completions: int
    backoff_limit_per_index: int
    max_failed_indexes: int | None
    """Without a limit the other indexes go on, and the Job fails when all have ended."""

    rules: tuple[ExitCodeRule, ...] = ()

    def action_for(self, exit_code: int) -> FailureAction:
        """The action of the first rule that matches; a failure that none matches is counted."""
        for rule in self.rules:
            if rule.matches(exit_code):
                return rule.action
        return FailureAction.COUNT


@dataclass(frozen=True, slots=True)
class IndexState:
    phase: Phase = Phase.ACTIVE
    num_failures: int = 0
    """Failed pods so far, ignored ones included: each lengthens the backoff."""

    num_counted: int = 0
    """Those of them that count against the limit."""


@dataclass(frozen=True, slots=True)
class JobState:
    indexes: tuple[IndexState, ...]
    verdict: Verdict | None = None
    """None while the Job goes on. Once set, no pod may be started and all others must end."""

    @classmethod
    def at_start(cls, policy: JobPolicy) -> "JobState":
        return cls(indexes=(IndexState(),) * policy.completions)


def after_exit(
    policy: JobPolicy, state: JobState, *, index: int, exit_code: int
) -> tuple[JobState, float | None]:
    """The Job once a pod of ``index`` ended, and after how many seconds to replace that pod.

    None for the seconds means that it is not replaced: its index is done, or the Job is.
    """
    if state.verdict is not None or state.indexes[index].phase is not Phase.ACTIVE:
        return state, None
    before = state.indexes[index]
    if exit_code == 0:
        return _settle(policy, state, index, replace(before, phase=Phase.SUCCEEDED)), None

    action = policy.action_for(exit_code)
    failed = replace(
        before,
        num_failures=before.num_failures + 1,
        num_counted=before.num_counted + (action is not FailureAction.IGNORE),
    )
    if action is FailureAction.FAIL_JOB:
        failed = replace(failed, phase=Phase.FAILED)
        return replace(_with_index(state, index, failed), verdict=Verdict.POD_FAILURE_POLICY), None
    if action is FailureAction.FAIL_INDEX or failed.num_counted > policy.backoff_limit_per_index:
        return _settle(policy, state, index, replace(failed, phase=Phase.FAILED)), None
    return _with_index(state, index, failed), backoff_seconds(failed.num_failures)


def backoff_seconds(num_failures: int) -> float:
    """How long the controller waits before it replaces a pod that failed ``num_failures`` times."""
    # The cap is reached at the sixth doubling; larger powers would overflow a float in the end.
    doublings = min(num_failures - 1, 6)
    return min(FIRST_BACKOFF_SECONDS * 2.0**doublings, LONGEST_BACKOFF_SECONDS)


def _settle(policy: JobPolicy, state: JobState, index: int, ended: IndexState) -> JobState:
    """Record that ``index`` needs no further pod, and whether that ends the Job."""
    state = _with_index(state, index, ended)
    phases = [each.phase for each in state.indexes]
    num_failed = phases.count(Phase.FAILED)
    if policy.max_failed_indexes is not None and num_failed > policy.max_failed_indexes:
        return replace(state, verdict=Verdict.MAX_FAILED_INDEXES)
    if Phase.ACTIVE in phases:
        return state
    return replace(state, verdict=Verdict.FAILED_INDEXES if num_failed else Verdict.COMPLETE)


def _with_index(state: JobState, index: int, changed: IndexState) -> JobState:
    before, after = state.indexes[:index], state.indexes[index + 1 :]
    return replace(state, indexes=(*before, changed, *after))
