"""Which faults a run suffers, and when: the same plan for every recovery layer.

The plan is listed outright, or drawn for 16 ranks whatever the run has. A smaller
run takes each rank modulo its own number, so that two runs of different size suffer
the same kinds at the same steps. With few ranks that may hit rank 0 even where
``include_rank_zero`` is off. Not covered: that every kind occurs, or, without
``seconds_apart``, that a run is given time to recover between two faults; and with
it, that the run lasts long enough for the last ones.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer.faults.settings import FaultKind, FaultSettings

PLANNED_WORLD_SIZE = 16


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    """Says index, kind, step and rank as planned. It stays when the rank is mapped to fewer
    ranks: a run whose world shrinks must still know the fault that it has suffered."""

    step: int
    rank: int
    kind: FaultKind


def plan_faults(settings: FaultSettings, *, max_steps: int) -> tuple[Fault, ...]:
    """The plan in order of step: that which is listed or, without a list, that of the seed.

    Drawn for 16 ranks, no two faults share a step, and steps are those after ``after_step``
    and before ``max_steps``.
    """
    if settings.planned:
        listed = sorted(settings.planned, key=lambda planned: planned.step)
        return tuple(
            _fault(index, fault.kind, fault.step, fault.rank)
            for index, fault in enumerate(listed, start=1)
        )
    generator = random.Random(settings.seed)
    candidates = range(settings.after_step + 1, max_steps)
    if settings.count > len(candidates):
        raise ValueError(
            f"faults.count {settings.count} does not fit in the {len(candidates)} steps between "
            f"faults.after_step {settings.after_step} and max_steps {max_steps}; "
            "lower faults.count or raise max_steps"
        )
    lowest_rank = 0 if settings.include_rank_zero else 1
    plan = []
    # The order of the draws is part of the contract: it gives the published schedule.
    for index, step in enumerate(sorted(generator.sample(candidates, settings.count)), start=1):
        rank = generator.randint(lowest_rank, PLANNED_WORLD_SIZE - 1)
        (kind,) = generator.choices(settings.kinds, weights=settings.weights)
        plan.append(_fault(index, kind, step, rank))
    return tuple(plan)


def on_ranks(plan: tuple[Fault, ...], world_size: int) -> tuple[Fault, ...]:
    """The same plan on ``world_size`` ranks."""
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    return tuple(replace(fault, rank=fault.rank % world_size) for fault in plan)


def may_be_due(plan: tuple[Fault, ...], *, step: int, rank: int, waits: bool) -> bool:
    """Whether it is worth a look at what has fired; with ``waits``, faults outlast their step."""
    return any(
        fault.rank == rank and (fault.step == step or (waits and fault.step < step))
        for fault in plan
    )


def faults_due(
    plan: tuple[Fault, ...],
    *,
    step: int,
    rank: int,
    fired: Mapping[str, float],
    now: float = 0.0,
    began: float = 0.0,
    seconds_apart: float | None = None,
) -> tuple[Fault, ...]:
    """The faults that this rank must suffer now, in plan order; at most one if they are spaced.

    Args:
        fired: Names of those that fired, and the wall time of each.
        now: Wall time.
        began: Wall time at which the run's first attempt did.
        seconds_apart: The least time between two; a fault waits for it past its own step.
    """
    left = tuple(fault for fault in plan if fault.name not in fired)
    if seconds_apart is None:
        return tuple(fault for fault in left if (fault.step, fault.rank) == (step, rank))
    # They fire in plan order, so the one before is the last that fired.
    if not left or now < max(fired.values(), default=began) + seconds_apart:
        return ()
    following = left[0]
    return (following,) if following.rank == rank and step >= following.step else ()


def _fault(index: int, kind: FaultKind, step: int, rank: int) -> Fault:
    name = f"{index}-{kind.value}-step-{step}-rank-{rank}"
    return Fault(name=name, step=step, rank=rank, kind=kind)
