"""Whether a rehearsed plan did what it must: exact result, every fault once, the right layer.

Pure: events and how the Job ended in, a verdict out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos.cells import (
    MOST_LOST,
    STEADY_STEPS,
    TIERS,
    Cell,
    Expectation,
    Outcome,
    expected,
    is_further_out,
    nearest_tier,
)
from tests.chaos.plans import Plan
from trainer.events import Event
from trainer.faults.settings import FaultKind
from trainer.goodput.ledger import account_for
from trainer.goodput.recoveries import Recovery
from trainer.settings import RecoveryLayer

_WORST_FIRST = (Outcome.REFUSED, Outcome.RECOVERED, Outcome.ENDURED)

Steps = dict[str, tuple[list[int], float]]
"""Sample ids and loss by ``step/rank``; a step done again stands with its last execution."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to; two runs are equal if theirs are."""

    final_step: int
    digests: Mapping[str, str]
    steps: Steps

    def differences(self, reference: "Result") -> list[str]:
        found = []
        if self.final_step != reference.final_step:
            found.append(f"ended at step {self.final_step}, not {reference.final_step}")
        if dict(self.digests) != dict(reference.digests):
            found.append("digests of parameters and optimizer differ")
        names = sorted(self.steps.keys() | reference.steps.keys())
        wrong = [n for n in names if not _same(self.steps.get(n), reference.steps.get(n))]
        if wrong:
            found.append(f"{len(wrong)} steps differ in samples or loss, first {wrong[0]}")
        return found


@dataclass(frozen=True, slots=True)
class Suffered:
    """One fault that fired, and what became of it."""

    kind: str
    caught_by: str | None
    """The layer that began the next attempt; None where there was none."""

    further_out: bool
    seconds: Mapping[str, float]
    """By bin, from the fault until every rank had completed a step of the next attempt."""

    tier: str | None = None
    """What the state was restored from."""

    steps_lost: int | None = None


@dataclass(slots=True)
class Verdict:
    outcome: Outcome
    problems: list[str] = field(default_factory=list)
    suffered: list[Suffered] = field(default_factory=list)


def result_of(events: Sequence[Event]) -> Result:
    account = account_for(events)
    return Result(
        final_step=account.final_step if account.finished else -account.final_step,
        digests={str(rank): digest for rank, digest in account.digests.items()},
        steps={
            f"{event['step']}/{event['rank']}": (list(event["sample_ids"]), float(event["loss"]))
            for event in events
            if event["name"] == "step_completed"
        },
    )


def judge(
    plan: Plan,
    events: Sequence[Event],
    reference: Result,
    *,
    job_outcome: str,
    exit_code: int | None,
) -> Verdict:
    """``job_outcome`` is the rehearsal's word, ``exit_code`` that of the pod that failed it."""
    claims = [expected(cell) for cell in plan.cells]
    verdict = Verdict(_outcome(claims))
    if plan.is_refused:
        verdict.problems.append("the settings were to refuse it, and it ran")
        return verdict
    if job_outcome != "complete":
        verdict.problems.append(f"the Job {job_outcome}, exit code {exit_code}")
    if not events:
        verdict.problems.append("no event was written")
        return verdict
    verdict.problems += result_of(events).differences(reference)
    account = account_for(events)
    attempts = {int(event["attempt"]) for event in events if event["name"] == "step_completed"}
    if verdict.outcome is Outcome.ENDURED and len(attempts) > 1:
        verdict.problems.append(f"it was to be endured, and took {len(attempts)} attempts")
    if account.nonfinite_loss_steps:
        verdict.problems.append(f"losses are not finite from {account.nonfinite_loss_steps[0]}")
    verdict.problems += _faults_not_as_planned(plan, events)
    for recovery in account.recoveries:
        cell = Cell(FaultKind(recovery.kind), plan.layer)
        suffered, problem = _suffered(cell, recovery, events, memory=plan.memory)
        verdict.suffered.append(suffered)
        verdict.problems += [problem] if problem else []
    return verdict


def refused_by_settings(plan: Plan, reason: str) -> Verdict:
    """The settings would not have it: right only where the table says so."""
    if plan.is_refused:
        return Verdict(Outcome.REFUSED)
    return Verdict(Outcome.REFUSED, [f"the settings refuse it: {' '.join(reason.split())}"])


def caught_by(events: Sequence[Event], *, attempt: int, since: float) -> RecoveryLayer | None:
    """Which layer began the attempt after ``attempt``, told by what had to be started for it."""
    later = [
        float(e["wall"])
        for e in events
        if e["name"] == "step_completed" and int(e["attempt"]) > attempt
    ]
    if not later:
        return None
    between = {e["name"] for e in events if since < float(e["wall"]) < min(later)}
    if "pod_started" in between:
        return RecoveryLayer.POD
    return RecoveryLayer.IN_JOB if "process_started" in between else RecoveryLayer.IN_PROCESS


def as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome.value,
        "problems": verdict.problems,
        "suffered": [
            {
                "kind": each.kind,
                "caught_by": each.caught_by,
                "further_out": each.further_out,
                "seconds": dict(each.seconds),
                "tier": each.tier,
                "steps_lost": each.steps_lost,
            }
            for each in verdict.suffered
        ],
    }


def _outcome(claims: Sequence[Expectation]) -> Outcome:
    outcomes = {claim.outcome for claim in claims}
    return next(each for each in _WORST_FIRST if each in outcomes)


def _faults_not_as_planned(plan: Plan, events: Sequence[Event]) -> list[str]:
    planned = Counter((f.kind.value, f.step, f.rank) for f in plan.faults)
    fired = Counter(
        (str(e["kind"]), int(e["step"]) + 1, int(e["rank"]))
        for e in events
        if e["name"] == "fault_injected"
    )
    never, unplanned = planned - fired, fired - planned
    found = [f"{kind} at step {step} of rank {rank} never fired" for kind, step, rank in never]
    return found + [
        f"{kind} at step {step} of rank {rank} fired and was not planned, or twice"
        for kind, step, rank in unplanned
    ]


def _suffered(
    cell: Cell, recovery: Recovery, events: Sequence[Event], *, memory: bool
) -> tuple[Suffered, str | None]:
    claim = expected(cell)
    moments = [
        float(e["wall"])
        for e in events
        if e["name"] == "fault_injected" and e["fault"] == recovery.fault
    ]
    layer = caught_by(events, attempt=recovery.attempt, since=moments[0])
    seconds = {str(b): s for b, s in (recovery.seconds_by_bin or {}).items()}
    if claim.outcome is Outcome.ENDURED:
        # A later fault's attempt is not this one's recovery: nothing was caught.
        return Suffered(cell.kind.value, None, further_out=False, seconds={}), None
    tier, lost = recovery.source, recovery.steps_lost
    suffered = Suffered(cell.kind.value, layer and layer.value, False, seconds, tier, lost)
    if layer is None or claim.caught_by is None or tier is None or lost is None:
        return suffered, f"{cell}: nobody caught it"
    further = is_further_out(layer, claim.caught_by)
    suffered = replace(suffered, further_out=further)
    if not further and layer is not claim.caught_by:
        return suffered, f"{cell}: {layer} caught it, further in than {claim.caught_by}"
    nearest = nearest_tier(cell, memory=memory)
    if TIERS.index(tier) < TIERS.index(nearest):
        return suffered, f"{cell}: restored from {tier}, nearer than {nearest}"
    began_at = max(
        int(e["step"])
        for e in events
        if e["name"] == "restored" and int(e["attempt"]) == recovery.attempt
    )
    is_steady = recovery.step - began_at >= STEADY_STEPS
    if lost > MOST_LOST.get(tier, lost) and (is_steady or tier == "live"):
        return suffered, f"{cell}: {lost} completed steps were lost with the tier {tier}"
    return suffered, None


def _same(one: object, other: object) -> bool:
    return one is not None and one == other
