"""The account of one run: where its wall time went, what survived, what each fault cost.

``timeline`` says by which rule a second falls into which bin, ``attempts`` when a
step counts as executed and when its result survives.

goodput_fraction = steps kept x unfaulted step time / wall time. The unfaulted step
time is the median of a run that suffers and saves nothing, where one is given.
Steps done again never count as useful, however fast they were.

Pure: no torch, no clock, no files. Not covered: a run whose number of ranks changes
in the middle keeps its sample ids comparable, but not its digests.
"""

import hashlib
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer.events import Event
from trainer.goodput.attempts import Attempt, Execution, attempts_of
from trainer.goodput.recoveries import Recovery, recoveries_of, seconds_by_bin
from trainer.goodput.timeline import Bin, busy_seconds, lay_out

__all__ = ["Account", "Bin", "Recovery", "StepTime", "account_for"]


class StepTime(StrEnum):
    """Which step time goodput was reckoned with."""

    REFERENCE = "reference"
    OWN_MEDIAN = "own_median"


@dataclass(frozen=True, slots=True)
class Account:
    wall_seconds: float
    """From the first event to the last."""

    seconds_by_bin: Mapping[Bin, float]
    """Every bin; they add up to ``wall_seconds``."""

    finished: bool
    """Every rank of the last attempt wrote that the run is finished."""

    final_step: int
    """The last step whose result survived."""

    num_attempts: int
    max_attempt: int
    steps_kept: int
    steps_redone: int
    """Executions of a step whose result did not survive."""

    num_saves: int
    stall_seconds_per_save: float | None
    save_seconds: float | None
    """Mean from begun to committed, of the slowest rank; ``None`` if none was committed."""

    goodput_fraction: float
    step_seconds: float | None
    """The unfaulted step time used; ``None`` if it is the run's own and no step was kept."""

    step_time: StepTime
    recoveries: tuple[Recovery, ...]
    """One for each injected fault, in order of time."""

    digests: Mapping[int, str]
    """What each rank wrote of its parameters and optimizer state when it last finished."""

    sample_ids_digest: str
    """Of every kept step and its sample ids; a step missing or done twice changes it."""

    nonfinite_loss_steps: tuple[int, ...]


def account_for(events: Sequence[Event], *, reference_step_seconds: float | None = None) -> Account:
    """Reckon one run's events, in any order.

    Raises:
        ValueError: there are no events.
    """
    if not events:
        raise ValueError("a run without events cannot be accounted for")
    events = sorted(events, key=lambda event: float(event["wall"]))
    attempts = attempts_of(events)
    segments = lay_out(events, attempts)
    began, ended = float(events[0]["wall"]), float(events[-1]["wall"])
    kept = [execution for attempt in attempts for execution in attempt.kept]
    num_executions = sum(len(attempt.executions) for attempt in attempts)
    step_seconds = reference_step_seconds
    if step_seconds is None:
        step_seconds = _median_step_seconds(kept)
    num_saves = len(_slowest_rank(events, "checkpoint_begun", "stall_seconds"))
    stall = sum(each.stall_seconds for attempt in attempts for each in attempt.executions)
    return Account(
        wall_seconds=ended - began,
        seconds_by_bin=seconds_by_bin(segments, began, ended),
        finished=bool(attempts) and attempts[-1].finished is not None,
        final_step=max((execution.step for execution in kept), default=0),
        num_attempts=len(attempts),
        max_attempt=max((attempt.number for attempt in attempts), default=0),
        steps_kept=len(kept),
        steps_redone=num_executions - len(kept),
        num_saves=num_saves,
        stall_seconds_per_save=stall / num_saves if num_saves else None,
        save_seconds=_mean(_slowest_rank(events, "checkpoint_committed", "save_seconds")),
        goodput_fraction=_goodput(len(kept), step_seconds, ended - began),
        step_seconds=step_seconds,
        step_time=StepTime.OWN_MEDIAN if reference_step_seconds is None else StepTime.REFERENCE,
        recoveries=recoveries_of(events, attempts, segments),
        digests={int(e["rank"]): str(e["digest"]) for e in events if e["name"] == "run_finished"},
        sample_ids_digest=_sample_ids_digest(attempts),
        nonfinite_loss_steps=tuple(
            execution.step for execution in kept if not all(map(math.isfinite, execution.losses))
        ),
    )


def _goodput(steps_kept: int, step_seconds: float | None, wall_seconds: float) -> float:
    if step_seconds is None or wall_seconds <= 0:
        return 0.0
    return steps_kept * step_seconds / wall_seconds


def _median_step_seconds(kept: Sequence[Execution]) -> float | None:
    """Of the job's kept steps, from one completion to the next, without their stalls."""
    seconds = [max(busy_seconds(step) - step.stall_seconds, 0.0) for step in kept]
    return statistics.median(seconds) if seconds else None


def _slowest_rank(events: Sequence[Event], name: str, field: str) -> list[float]:
    """``field`` of each save that ``name`` tells of: of all ranks, the largest."""
    by_save: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        if event["name"] == name:
            by_save[int(event["attempt"]), int(event["step"])].append(float(event[field]))
    return [max(values) for values in by_save.values()]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _sample_ids_digest(attempts: Sequence[Attempt]) -> str:
    rows = sorted((step.step, step.sample_ids) for attempt in attempts for step in attempt.kept)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
