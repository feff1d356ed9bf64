"""What one training run does: every setting of the trainer, checked where it is declared.

The pod gets these as one JSON file. Nothing here imports torch, so the charts
and the planners read and check the same settings in milliseconds.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, ValidationError, model_validator

from trainer.faults.settings import FaultKind, FaultSettings
from trainer.fields import (
    LARGEST_STEP,
    Fraction,
    NonNegativeInt,
    PositiveInt,
    Seconds,
    Settings,
)
from trainer.refusals import explain
from trainer.snapshots.settings import SnapshotSettings


class ModelPreset(StrEnum):
    TINY = "tiny"
    LLAMA_1B = "llama-1b"
    LLAMA_3_1_8B = "llama-3.1-8b"


class CheckpointMode(StrEnum):
    NONE = "none"
    SYNC = "sync"
    ASYNC = "async"
    ASYNC_LOCAL_SHARDS = "async_local_shards"

    @property
    def is_asynchronous(self) -> bool:
        """Whether training goes on while the worker writes."""
        return self in (CheckpointMode.ASYNC, CheckpointMode.ASYNC_LOCAL_SHARDS)


class RecoveryLayer(StrEnum):
    NONE = "none"
    POD = "pod"
    IN_JOB = "in_job"
    IN_PROCESS = "in_process"
    LAYERED = "layered"

    @property
    def uses_ft_launcher(self) -> bool:
        """Whether the launcher replaces workers in place; else their failure ends the pod."""
        return self in (RecoveryLayer.IN_JOB, RecoveryLayer.LAYERED)

    @property
    def outlives_ranks(self) -> bool:
        """Whether a pod may see another attempt, so that what is in its memory is of use."""
        return self.uses_ft_launcher or self.reenters

    @property
    def reenters(self) -> bool:
        """Whether a living process trains again, watched by a monitor that it forks."""
        return self in (RecoveryLayer.IN_PROCESS, RecoveryLayer.LAYERED)


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
    """Restarts, by whichever layer, within ``restart_window_seconds``; one more ends the run."""

    restart_window_seconds: Seconds = 3600.0
    """A run that fails now and then goes on for ever; one that fails this often is broken."""


class TimeoutSettings(Settings):
    """The few numbers from which ``trainer.timeouts`` derives every timeout."""

    hang_seconds: Seconds = 120.0
    """A rank that has made no progress for this long is hung. Must exceed the longest step,
    with the save that it waits for. Once the run knows its own step time, less will do."""

    shortest_hang_seconds: Seconds = 5.0
    """However short the steps are, a rank is not taken for hung before."""

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
    snapshots: SnapshotSettings = SnapshotSettings()
    recovery: RecoverySettings = RecoverySettings()
    faults: FaultSettings = FaultSettings()
    timeouts: TimeoutSettings = TimeoutSettings()

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        self.faults.refuse_misfit(max_steps=self.max_steps, device=self.device)
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

    @model_validator(mode="after")
    def _hangs_are_told_from_slowness(self) -> Self:
        shortest, longest = self.timeouts.shortest_hang_seconds, self.timeouts.hang_seconds
        if shortest > longest:
            raise ValueError(
                f"timeouts.shortest_hang_seconds {shortest:g} must not exceed "
                f"timeouts.hang_seconds {longest:g}; lower the first or raise the second"
            )
        is_to_be_slow = FaultKind.SLOW in self.faults.kinds_to_come()
        if is_to_be_slow and self.faults.slow_seconds >= shortest:
            raise ValueError(
                f"faults.slow_seconds {self.faults.slow_seconds:g} must be below "
                f"timeouts.shortest_hang_seconds {shortest:g}, or a slow rank is taken for hung"
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
