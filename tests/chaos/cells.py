"""What must happen to each kind of fault under each recovery layer: caught, endured or refused.

A cell is a kind and a layer. The table is the claim of this project; the drivers
beside it try to prove it wrong. A layer further out than the one named here may
catch a fault as well (a busy computer makes a rank late, and late counts as
hung); that is told apart, and no failure. One further in may not.

Not covered: GPUs. There ``cuda_error`` is a fault like others, and here the settings
refuse it, as they refuse faults that end a run which no layer protects.
"""

from dataclasses import dataclass
from enum import StrEnum

from trainer.faults.settings import PASSED_OVER, FaultKind
from trainer.settings import RecoveryLayer

FROM_INSIDE_OUT = (RecoveryLayer.IN_PROCESS, RecoveryLayer.IN_JOB, RecoveryLayer.POD)

BEYOND_PYTHON = frozenset(
    {
        FaultKind.SIGKILL,
        FaultKind.HANG_GIL,
        FaultKind.STOP,
        FaultKind.EXIT,
        FaultKind.CORRUPT_CHECKPOINT,  # its process dies, so that the checkpoint is read
    }
)
"""What they leave behind is no process that could be entered again."""


class Outcome(StrEnum):
    RECOVERED = "recovered"
    ENDURED = "endured"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Cell:
    kind: FaultKind
    layer: RecoveryLayer

    def __str__(self) -> str:
        return f"{self.kind.value} x {self.layer.value}"


@dataclass(frozen=True, slots=True)
class Expectation:
    outcome: Outcome
    caught_by: RecoveryLayer | None = None
    """The innermost layer that may catch it."""

    def __str__(self) -> str:
        match self.outcome:
            case Outcome.RECOVERED:
                return f"caught by {self.caught_by}"
            case Outcome.ENDURED:
                return "endured"
            case Outcome.REFUSED:
                return "refused by the settings"


TIERS = ("live", "snapshot", "peer", "durable", "none")
"""From the nearest outwards; ``none`` is the beginning of a run that had saved nothing yet."""

MOST_LOST = {"live": 0, "snapshot": 2}
"""Completed steps that may be done again, with a snapshot of each step: the one whose copy ran
beside the step that failed, and the one before where a rank died between two agreements."""

STEADY_STEPS = 12
"""An attempt's first steps may pass before its buffers are ready."""

ALL_CELLS = tuple(Cell(kind, layer) for layer in RecoveryLayer for kind in FaultKind)


def expected(cell: Cell) -> Expectation:
    """The claim for one cell, on a computer without GPUs."""
    if cell.kind in PASSED_OVER:
        return Expectation(Outcome.ENDURED)
    if cell.kind is FaultKind.CUDA_ERROR or cell.layer is RecoveryLayer.NONE:
        return Expectation(Outcome.REFUSED)
    return Expectation(Outcome.RECOVERED, caught_by=_innermost(cell))


def nearest_tier(cell: Cell, *, memory: bool) -> str:
    """The nearest tier that a recovery from this fault may go on from.

    A peer's where one pod of several is replaced; most often, all are.
    """
    match expected(cell).caught_by if memory else None:
        case RecoveryLayer.IN_PROCESS:
            return "live"
        case RecoveryLayer.IN_JOB:
            return "snapshot"
        case RecoveryLayer.POD if cell.layer.outlives_ranks:
            return "peer"
        case _:
            return "durable"


def is_claimed(cell: Cell) -> bool:
    """Whether a run must survive this fault under this layer; the others never start."""
    return expected(cell).outcome is not Outcome.REFUSED


def is_further_out(layer: RecoveryLayer, than: RecoveryLayer) -> bool:
    return FROM_INSIDE_OUT.index(layer) > FROM_INSIDE_OUT.index(than)


def _innermost(cell: Cell) -> RecoveryLayer:
    kind, layer = cell.kind, cell.layer
    if kind is FaultKind.NODE:
        # The launcher is gone with its ranks; where there is another, PID 1 starts it anew.
        return RecoveryLayer.IN_JOB if layer.uses_ft_launcher else RecoveryLayer.POD
    if layer is RecoveryLayer.IN_PROCESS:
        return RecoveryLayer.POD if kind in BEYOND_PYTHON else RecoveryLayer.IN_PROCESS
    if layer is RecoveryLayer.LAYERED:
        return RecoveryLayer.IN_JOB if kind in BEYOND_PYTHON else RecoveryLayer.IN_PROCESS
    return layer
