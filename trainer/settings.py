"""What one training run does: every setting of the trainer, checked where it is declared.

The pod gets these as one JSON file. Nothing here imports torch, so the charts
and the planners read and check the same settings in milliseconds.
"""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from trainer.refusals import explain

LARGEST_STEP = 1_000_000_000

# Strict, because pydantic's own take True for 1, and YAML reads an unquoted yes as True.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0)]

Fraction = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class Settings(BaseModel):
    """Frozen, and a key that is not declared is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class ModelPreset(StrEnum):
    TINY = "tiny"
    LLAMA_1B = "llama-1b"
    LLAMA_3_1_8B = "llama-3.1-8b"


class CheckpointMode(StrEnum):
    NONE = "none"
    SYNC = "sync"
    ASYNC = "async"
    ASYNC_LOCAL_SHARDS = "async_local_shards"


class RecoveryLayer(StrEnum):
    NONE = "none"
    POD = "pod"
    IN_JOB = "in_job"
    IN_PROCESS = "in_process"


class FaultKind(StrEnum):
    EXCEPTION = "exception"
    SIGKILL = "sigkill"
    HANG = "hang"


class ModelSettings(Settings):
    preset: ModelPreset
    weights: str | None = None
    """Local folder or hub id with safetensors weights to start from; without it, seeded noise."""

    seed: NonNegativeInt = 0
    activation_checkpointing: bool = False


class DataSettings(Settings):
    dataset: Path | None = None
    """Folder written by the dataset job; without it, the built-in corpus, byte by byte."""

    sequence_length: PositiveInt
    global_batch_size: PositiveInt
    """Sequences in one step, over all ranks."""

    micro_batch_size: PositiveInt | None = None
    """Sequences of one rank that go through the model at once, at most; without it, all of the
    rank's part. A smaller one needs less memory for activations, but keeps whole gradients in
    fp32 between its passes. Changes no result beyond rounding."""

    seed: NonNegativeInt = 0


class OptimizerSettings(Settings):
    learning_rate: PositiveFloat = 3e-4
    """The peak, reached at the end of the warm-up."""

    warmup_steps: NonNegativeInt = 0
    """Steps in which the rate grows linearly to ``learning_rate``."""

    final_learning_rate_fraction: Fraction = 0.1
    """What the cosine schedule leaves of ``learning_rate`` at the last step."""

    weight_decay: NonNegativeFloat = 0.1
    """Of matrices; norms and biases are left alone."""

    max_gradient_norm: PositiveFloat = 1.0
    """Gradients of a step are scaled down to this norm, over all parameters and ranks."""


class CheckpointSettings(Settings):
    mode: CheckpointMode = CheckpointMode.ASYNC
    interval_steps: PositiveInt
    keep_latest: PositiveInt = 3
    """Committed checkpoints that are kept; older ones are deleted after a newer one committed."""

    resume_step: PositiveInt | None = None
    """Go back to this step's checkpoint, once; without it, go on from the newest valid one."""


class RecoverySettings(Settings):
    layer: RecoveryLayer = RecoveryLayer.IN_JOB
    max_restarts: NonNegativeInt = 20
    """Restarts of the workers by ft_launcher, or re-entries in process, before the pod gives up."""


class FaultSettings(Settings):
    """Faults to inject, drawn ahead from a seed; none by default."""

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


class TimeoutSettings(Settings):
    """The few numbers from which ``trainer.timeouts`` derives every timeout."""

    hang_seconds: Seconds = 120.0
    """A rank that has made no progress for this long is hung. Must exceed the longest step,
    with the save that it waits for."""

    startup_seconds: Seconds = 1200.0
    """The longest that imports, model build, restore and the first step may take."""

    drain_seconds: Seconds = 240.0
    """The longest that a save in flight may take to finish once the pod is told to stop."""


class TrainerSettings(Settings):
    run_directory: Path
    """Shared folder of this run alone: events, checkpoints, which faults have fired."""

    device: Literal["cuda", "cpu"] = "cuda"
    max_steps: Annotated[PositiveInt, Field(le=LARGEST_STEP)]
    model: ModelSettings
    data: DataSettings
    optimizer: OptimizerSettings = OptimizerSettings()
    checkpoint: CheckpointSettings
    recovery: RecoverySettings = RecoverySettings()
    faults: FaultSettings = FaultSettings()
    timeouts: TimeoutSettings = TimeoutSettings()

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        room = self.max_steps - 1 - self.faults.after_step
        if self.faults.count > max(room, 0):
            raise ValueError(
                f"faults.count {self.faults.count} does not fit between faults.after_step "
                f"{self.faults.after_step} and max_steps {self.max_steps}; "
                "lower faults.count or raise max_steps"
            )
        if self.optimizer.warmup_steps >= self.max_steps:
            raise ValueError(
                f"optimizer.warmup_steps {self.optimizer.warmup_steps} must be below "
                f"max_steps {self.max_steps}"
            )
        resume_step = self.checkpoint.resume_step
        if resume_step is not None and resume_step > self.max_steps:
            raise ValueError(
                f"checkpoint.resume_step {resume_step} is after the last step, max_steps "
                f"{self.max_steps}; lower checkpoint.resume_step or raise max_steps"
            )
        return self

    @classmethod
    def from_file(cls, path: Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Read the JSON settings file; ``changes`` are dotted keys that replace single values.

        Raises:
            SettingsError: the file cannot be read, or a value in it or in ``changes`` is wrong.
        """
        try:
            values = json.loads(path.read_text())
        except OSError as error:
            raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{path}: not JSON ({error})") from error
        if not isinstance(values, dict):
            raise SettingsError(f"{path}: must hold one JSON object")
        try:
            return cls.model_validate(with_changes(values, changes or {}))
        except ValidationError as error:
            raise SettingsError("\n".join(explain(error, cls, source=str(path)))) from error


class SettingsError(ValueError):
    """Settings that cannot be used; the message is one line for each thing that is wrong."""


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with each dotted key of ``changes`` replaced, e.g. ``checkpoint.mode``."""
    try:
        result: dict[str, Any] = json.loads(json.dumps(values, default=str))
    except TypeError as error:
        raise SettingsError(f"the name of a setting must be text ({error})") from error
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        inner = result
        for key in parents:
            child = inner.setdefault(key, {})
            if not isinstance(child, dict):
                raise SettingsError(f"{dotted}: {key!r} is a value, not a group of settings")
            inner = child
        inner[last] = value
    return result
