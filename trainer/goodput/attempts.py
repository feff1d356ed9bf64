"""The attempts of a run and the steps that each of them executed, read from its events.

The job is as far as its slowest rank: an attempt has reached a point (started,
process group ready, restored, a step completed, finished) at the moment when the
last of its ranks has. A step that only some ranks completed was never executed.
An execution survives if no later attempt restored an earlier step.

Relies on one rule of the writers: ``attempt`` is the same on every rank of an
attempt and grows over the whole run, whichever layer started it. Not covered: a
step whose checkpoint was committed before its last rank could record it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.events import Event

NO_SOURCE = "none"
"""Source of a restore that read nothing: the attempt began at step 0."""

_SIGNS_OF_MEMBERSHIP = ("attempt_started", "process_group_ready", "restored", "step_completed")


@dataclass(frozen=True, slots=True)
class Execution:
    """One step, completed by every rank of an attempt."""

    step: int
    began: float
    """Wall time at which the job had completed the step before, or was ready for the first."""

    completed: float
    measured_seconds: float
    """What the slowest rank measured for the whole step, the stall included."""

    stall_seconds: float
    sample_ids: tuple[int, ...]
    """Of all ranks, in rank order."""

    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Moments are wall times; ``None`` where at least one rank never got there."""

    number: int
    first_started: float
    started: float | None
    group_ready: float | None
    restored: float | None
    restored_step: int | None
    source: str | None
    executions: tuple[Execution, ...]
    finished: float | None
    kept_through: float
    """The last step whose result survived; infinite if nothing was rolled back since."""

    @property
    def progress(self) -> float:
        """The last moment at which the whole job is known to have got further."""
        if self.executions:
            return self.executions[-1].completed
        return latest(self.first_started, self.started, self.group_ready, self.restored)

    @property
    def last_step(self) -> int:
        return self.executions[-1].step if self.executions else self.restored_step or 0

    @property
    def kept(self) -> tuple[Execution, ...]:
        return tuple(e for e in self.executions if e.step <= self.kept_through)


def attempts_of(events: Sequence[Event]) -> tuple[Attempt, ...]:
    """Every attempt that at least one rank started, in order. ``events`` are in order of time."""
    by_number: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        # A process is started before it knows which attempt it is going to join.
        if "rank" in event and event["name"] != "process_started":
            by_number[int(event["attempt"])].append(event)
    attempts: list[Attempt] = []
    fence = kept_through = math.inf
    for number in sorted(by_number, reverse=True):
        attempt = _attempt(number, by_number[number], fence, kept_through)
        if attempt is None:
            continue
        attempts.append(attempt)
        fence = attempt.first_started
        if attempt.restored_step is not None:
            kept_through = min(kept_through, attempt.restored_step)
    return tuple(reversed(attempts))


def latest(*moments: float | None) -> float:
    return max(moment for moment in moments if moment is not None)


def _attempt(
    number: int, events: Sequence[Event], fence: float, kept_through: float
) -> Attempt | None:
    """What happened in one attempt until ``fence``, when the next one began."""
    moments: dict[str, dict[int, float]] = defaultdict(dict)
    for event in events:
        if event["wall"] <= fence:
            moments[event["name"]][int(event["rank"])] = float(event["wall"])
    ranks = frozenset(rank for name in _SIGNS_OF_MEMBERSHIP for rank in moments[name])
    if not ranks:
        return None
    group_ready = _when_all(ranks, moments["process_group_ready"])
    restored = _when_all(ranks, moments["restored"])
    started = _when_all(ranks, moments["attempt_started"])
    first_started = min(moments["attempt_started"].values(), default=float(events[0]["wall"]))
    restores = [event for event in events if event["name"] == "restored"]
    return Attempt(
        number=number,
        first_started=first_started,
        started=started,
        group_ready=group_ready,
        restored=restored,
        restored_step=min(int(e["step"]) for e in restores) if restored is not None else None,
        source="+".join(sorted({str(e["source"]) for e in restores}))
        if restored is not None
        else None,
        executions=_executions(
            [e for e in events if e["name"] == "step_completed" and e["wall"] <= fence],
            ranks,
            ready=latest(first_started, started, group_ready, restored),
        ),
        finished=_when_all(ranks, moments["run_finished"]),
        kept_through=kept_through,
    )


def _when_all(ranks: frozenset[int], moments: Mapping[int, float]) -> float | None:
    return max(moments.values()) if ranks <= moments.keys() else None


def _executions(
    completions: Sequence[Event], ranks: frozenset[int], *, ready: float
) -> tuple[Execution, ...]:
    """Steps in the order in which the slowest rank completed them.

    A step that an attempt wrongly runs twice is two executions, so that the
    digest of the sample ids shows it.
    """
    times_seen: Counter[tuple[int, int]] = Counter()
    by_execution: dict[tuple[int, int], dict[int, Event]] = defaultdict(dict)
    for event in completions:
        rank, step = int(event["rank"]), int(event["step"])
        by_execution[step, times_seen[rank, step]][rank] = event
        times_seen[rank, step] += 1
    whole = [of_rank for of_rank in by_execution.values() if ranks <= of_rank.keys()]
    executions: list[Execution] = []
    for of_rank in sorted(whole, key=_completed):
        executions.append(_execution(of_rank, began=ready))
        ready = executions[-1].completed
    return tuple(executions)


def _completed(of_rank: Mapping[int, Event]) -> float:
    return max(float(event["wall"]) for event in of_rank.values())


def _execution(of_rank: Mapping[int, Event], *, began: float) -> Execution:
    in_rank_order = [of_rank[rank] for rank in sorted(of_rank)]
    return Execution(
        step=int(in_rank_order[0]["step"]),
        began=began,
        completed=_completed(of_rank),
        measured_seconds=max(float(event["seconds"]) for event in in_rank_order),
        stall_seconds=max(float(event["stall_seconds"]) for event in in_rank_order),
        sample_ids=tuple(int(i) for event in in_rank_order for i in event["sample_ids"]),
        losses=tuple(float(event["loss"]) for event in in_rank_order),
    )
