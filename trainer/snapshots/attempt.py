"""What the snapshots of one attempt are taken of, and how far they have come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainer.distributed import Job
from trainer.settings import TrainerSettings
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.cadence import Cadence
from trainer.snapshots.copier import Copier, Copy, copier_for
from trainer.snapshots.doubts import Probe
from trainer.snapshots.header import SnapshotKey
from trainer.snapshots.identity import identity_of
from trainer.snapshots.peer_tier import PeerTier
from trainer.state import TrainState, local_shard


@dataclass(slots=True)
class Attempt:
    job: Job
    state: TrainState
    number: int
    identity: bytes
    tensors: Mapping[str, Tensor]
    """Local ones by name, in the order of the state."""

    copier: Copier
    cadence: Cadence
    probe: Probe | None = None
    copy: Copy | None = None
    is_first_step: bool = True
    is_ready: bool = False
    """Whether all ranks can take one."""

    wanted: int | None = None
    """The step whose state is to be taken whatever the cadence."""

    peers: PeerTier | None = None
    """None where no snapshot is copied to another node."""

    filled: SnapshotBuffer | None = None
    """What ``copy`` fills."""

    @property
    def values(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors.values())

    def is_due(self, step: int) -> bool:
        return self.is_ready and (step == self.wanted or self.cadence.is_due(step))

    def begin_copy(self, step: int, buffer: SnapshotBuffer) -> None:
        """Fill ``buffer`` with the state as it is now, which is that after ``step``."""
        buffer.begin(
            SnapshotKey(self.job.rank, self.number, step, self.job.world_size, self.identity)
        )
        self.filled = buffer
        self.copy = self.copier.start(self.values, buffer.tensors)


def attempt_of(
    settings: TrainerSettings,
    job: Job,
    state: TrainState,
    *,
    number: int,
    fingerprint: Mapping[str, Any],
) -> Attempt:
    named = state.tensors()
    return Attempt(
        job=job,
        state=state,
        number=number,
        identity=identity_of(
            run=settings.run_directory.absolute().name,
            world_size=job.world_size,
            layout=[(name, each.shape, str(each.dtype)) for name, each in named.items()],
            fingerprint=fingerprint,
        ),
        tensors={name: local_shard(tensor).detach() for name, tensor in named.items()},
        copier=copier_for(job.device, state.model),
        cadence=Cadence(
            budget=settings.snapshots.budget,
            fixed_interval=settings.snapshots.interval_steps,
        ),
    )
