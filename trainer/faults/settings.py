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
