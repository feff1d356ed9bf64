"""Which faults a run suffers, drawn ahead from a seed: the same plan for every recovery layer.

The plan is drawn for 16 ranks whatever the run has, and a smaller run takes
each rank modulo its own number, so that two runs of different size suffer the
same kinds at the same steps. With few ranks that may hit rank 0 even where
``include_rank_zero`` is off. Not covered: that every kind occurs, or that a run
is given time to recover between two faults; choose a seed whose plan does.
"""

import random
from dataclasses import dataclass, replace

from trainer.faults.settings import FaultKind, FaultSettings

PLANNED_WORLD_SIZE = 16


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    """Says index, kind, step and rank as drawn. It stays when the rank is mapped to fewer
    ranks: a run whose world shrinks must still know the fault that it has suffered."""

    step: int
    rank: int
    kind: FaultKind


def plan_faults(settings: FaultSettings, *, max_steps: int) -> tuple[Fault, ...]:
    """The plan for 16 ranks, in order of step; no two faults share a step.

    Steps are those after ``after_step`` and before ``max_steps``.
    """
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
        name = f"{index}-{kind.value}-step-{step}-rank-{rank}"
        plan.append(Fault(name=name, step=step, rank=rank, kind=kind))
    return tuple(plan)


def on_ranks(plan: tuple[Fault, ...], world_size: int) -> tuple[Fault, ...]:
    """The same plan on ``world_size`` ranks."""
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    return tuple(replace(fault, rank=fault.rank % world_size) for fault in plan)


def faults_due(
    plan: tuple[Fault, ...], *, step: int, rank: int, already_fired: frozenset[str]
) -> tuple[Fault, ...]:
    """The faults that this rank must suffer now, in plan order."""
    return tuple(
        fault
        for fault in plan
        if (fault.step, fault.rank) == (step, rank) and fault.name not in already_fired
    )
