"""Which faults a run is to suffer: kinds and weights to draw from, or each one by name."""

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, PositiveFloat, model_validator

from trainer.fields import LARGEST_STEP, NonNegativeInt, PositiveInt, Seconds, Settings


class FaultKind(StrEnum):
    EXCEPTION = "exception"
    SIGKILL = "sigkill"
    HANG = "hang"
    HANG_GIL = "hang_gil"
    STOP = "stop"
    COLLECTIVE_SKIP = "collective_skip"
    OOM = "oom"
    CUDA_ERROR = "cuda_error"
    SLOW = "slow"
    EXIT = "exit"
    NODE = "node"
    STORAGE_FULL = "storage_full"
    CORRUPT_CHECKPOINT = "corrupt_checkpoint"


PASSED_OVER = frozenset({FaultKind.SLOW, FaultKind.STORAGE_FULL})
"""These cost time or a save; no layer has to catch them."""


class PlannedFault(Settings):
    """One fault, said outright."""

    kind: FaultKind
    step: Annotated[PositiveInt, Field(le=LARGEST_STEP)]
    rank: NonNegativeInt


class FaultSettings(Settings):
    """Faults to inject, drawn ahead from a seed or listed one by one; none by default."""

    count: NonNegativeInt = 0
    seed: NonNegativeInt = 42
    kinds: Annotated[tuple[FaultKind, ...], Field(min_length=1)] = (
        FaultKind.EXCEPTION,
        FaultKind.HANG,
    )
    weights: tuple[PositiveFloat, ...] = (0.6, 0.4)
    after_step: NonNegativeInt = 10
    """Faults come after this step, so that every run has one to restore or redo."""

    include_rank_zero: bool = False
    planned: tuple[PlannedFault, ...] = ()
    """The whole plan, said outright instead of drawn; ``count`` must then be 0."""

    seconds_apart: Seconds | None = None
    """A fault waits, past its step, until so long after the one before it (the first: after the
    run's first attempt began). Without it, only steps count."""

    exit_code: Annotated[int, Field(strict=True, ge=0, le=255)] = 0
    """What a rank that suffers ``exit`` ends with, in the middle of the run."""

    slow_seconds: Seconds = 0.5
    """How much longer a rank that suffers ``slow`` takes for each of ``slow_steps`` steps."""

    slow_steps: PositiveInt = 20

    @model_validator(mode="after")
    def _planned_or_drawn(self) -> Self:
        if self.planned and self.count:
            raise ValueError(
                f"faults.count is {self.count} beside faults.planned, which is the whole plan; "
                "set faults.count to 0 or leave faults.planned out"
            )
        places = [(fault.step, fault.rank) for fault in self.planned]
        if twice := next((place for place in places if places.count(place) > 1), None):
            raise ValueError(
                f"faults.planned has two faults at step {twice[0]} on rank {twice[1]}, and only "
                "one can happen; move one to another step"
            )
        return self

    @model_validator(mode="after")
    def _one_weight_a_kind(self) -> Self:
        if len(self.kinds) != len(self.weights):
            raise ValueError(
                f"faults.kinds has {len(self.kinds)} entries and faults.weights "
                f"{len(self.weights)}; give one weight for each kind"
            )
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError("faults.kinds names a kind twice; name each once and raise its weight")
        if not math.isfinite(sum(self.weights)):
            raise ValueError(
                "the sum of faults.weights is not finite; only their ratio counts: lower them"
            )
        return self

    def refuse_misfit(self, *, max_steps: int, device: str) -> None:
        """What depends on the rest of the run's settings.

        Raises:
            ValueError: a fault could not happen in such a run.
        """
        if self.count > max(max_steps - 1 - self.after_step, 0):
            raise ValueError(
                f"faults.count {self.count} does not fit between faults.after_step "
                f"{self.after_step} and max_steps {max_steps}; "
                "lower faults.count or raise max_steps"
            )
        if late := [fault.step for fault in self.planned if fault.step >= max_steps]:
            raise ValueError(
                f"faults.planned has a fault at step {late[0]}, and the last one that can "
                f"suffer any is {max_steps - 1}; lower its step or raise max_steps"
            )
        if device == "cpu" and FaultKind.CUDA_ERROR in self.kinds_to_come():
            raise ValueError(
                "faults of kind cuda_error happen on a GPU only, and device is cpu; take the "
                "kind out of the plan, or set device to cuda"
            )

    def kinds_to_come(self) -> frozenset[FaultKind]:
        """Those that the run may have to suffer."""
        drawn = self.kinds if self.count else ()
        return frozenset(drawn) | {fault.kind for fault in self.planned}
