"""Whether and how often the state is copied into host memory, where it outlives its process."""

from typing import Annotated

from pydantic import Field

from trainer.fields import Fraction, PositiveInt, Settings


class SnapshotSettings(Settings):
    enabled: bool = True
    """Whether a rank goes on from memory where it can; else always from a checkpoint."""

    interval_steps: PositiveInt | None = None
    """Steps from one snapshot to the next; without it, the trainer measures and chooses."""

    budget: Annotated[Fraction, Field(gt=0)] = 0.01
    """The share of training time that snapshots may cost, where the trainer chooses."""
