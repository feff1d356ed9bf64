"""Draws plans: which run suffers which faults. Plan ``index`` of ``seed`` depends on nothing else.

Plans are dealt like cards: the cells of kind and layer are shuffled, one deck
after another, and each plan has one of them at least. So all cells had their
turn after as many plans as there are cells, and none is forgotten for long.
Where a cell must end the run, its fault comes alone: what came later would
never fire, and what came earlier would prove nothing more.

Not covered: faults that hit two ranks at once; each has a step of its own.
"""

import random
from dataclasses import dataclass

from tests.chaos.cells import ALL_CELLS, Cell, is_claimed
from trainer.faults.settings import FaultKind
from trainer.settings import CheckpointMode, RecoveryLayer

MAX_STEPS = 72
INTERVAL_STEPS = 12
STEPS_APART = 6
"""So that a fault meets a run that has begun to step again, and not always a new checkpoint."""

SAVING_MODES = (CheckpointMode.ASYNC, CheckpointMode.SYNC, CheckpointMode.ASYNC_LOCAL_SHARDS)
SHAPES = ((1, 2), (2, 1), (1, 3), (1, 4), (2, 2))
EXIT_CODES = (0, 1, 17, 255)
MEMORY_SHARE = 0.75
"""Of the plans whose layer may go on from memory."""

FIRST_STEPS = range(4, MAX_STEPS - 4)

_COMPANIONS = tuple(kind for kind in FaultKind if kind is not FaultKind.CUDA_ERROR)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    kind: FaultKind
    step: int
    rank: int


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    """Letters, digits and dashes; part of the name of the run."""

    layer: RecoveryLayer
    mode: CheckpointMode
    num_nodes: int
    ranks_per_node: int
    exit_code: int
    """What a rank that suffers ``exit`` ends with."""

    faults: tuple[PlannedFault, ...]
    memory: bool = False
    """Whether there are snapshots, one of each step; else only checkpoints."""

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @property
    def is_refused(self) -> bool:
        """Whether a fault of it must end the run."""
        return not all(is_claimed(cell) for cell in self.cells)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(fault.kind, self.layer) for fault in self.faults)

    def __str__(self) -> str:
        faults = ", ".join(f"{each.kind.value}@{each.step}/r{each.rank}" for each in self.faults)
        shape = f"{self.num_nodes}x{self.ranks_per_node}"
        tiers = f"{self.mode.value}{' memory' if self.memory else ''}"
        return f"{self.layer.value} {tiers} {shape}: {faults or 'no fault'}"


def draw_plan(seed: int, index: int) -> Plan:
    """The plan of this seed and index, the same on every computer."""
    lap, place = divmod(index, len(ALL_CELLS))
    deck = list(ALL_CELLS)
    random.Random(f"deck {seed} {lap}").shuffle(deck)
    dealt = deck[place]
    generator = random.Random(f"plan {seed} {index}")
    num_nodes, ranks_per_node = generator.choice(SHAPES)
    kinds = [dealt.kind]
    if is_claimed(dealt):
        choices = [kind for kind in _COMPANIONS if is_claimed(Cell(kind, dealt.layer))]
        kinds += generator.choices(choices, k=generator.randint(0, 2))
        generator.shuffle(kinds)
    ranks = range(num_nodes * ranks_per_node)
    return Plan(
        name=f"s{seed}-{index}",
        layer=dealt.layer,
        mode=generator.choice(SAVING_MODES),
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        exit_code=generator.choice(EXIT_CODES),
        faults=tuple(
            PlannedFault(kind, step, generator.choice(ranks))
            for kind, step in zip(kinds, _steps(generator, len(kinds)), strict=True)
        ),
        memory=dealt.layer.outlives_ranks and generator.random() < MEMORY_SHARE,
    )


def _steps(generator: random.Random, count: int) -> list[int]:
    """So many steps in ascending order, well apart."""
    room = len(FIRST_STEPS) - (count - 1) * STEPS_APART
    chosen = sorted(generator.sample(range(room), count))
    return [FIRST_STEPS.start + step + place * STEPS_APART for place, step in enumerate(chosen)]
