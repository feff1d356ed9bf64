"""Whether and how often the state is copied into host memory, where it outlives its process."""

from typing import Annotated

from pydantic import Field

from trainer.fields import Fraction, NonNegativeInt, PositiveInt, Seconds, Settings


class SnapshotSettings(Settings):
    enabled: bool = True
    """Whether a rank goes on from memory where it can; else always from a checkpoint."""

    interval_steps: PositiveInt | None = None
    """Steps from one snapshot to the next; without it, the trainer measures and chooses."""

    budget: Annotated[Fraction, Field(gt=0)] = 0.01
    """The share of training time that snapshots may cost, where the trainer chooses."""

    peer_interval_seconds: Seconds | None = 60.0
    """How often, on more than one node, each rank's snapshot is copied into the memory of another
    node, so that the loss of a node costs no more than that; null for never."""

    peer_bytes_per_second: NonNegativeInt = 2_000_000_000
    """What a node sends for these copies at most; 0 for as much as its network carries."""
