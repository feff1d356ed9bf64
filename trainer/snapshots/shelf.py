"""The buffers of a rank: how many all ranks have room for, their files, and what is in which.

Not covered: files of ranks that have moved to another node, which count as room and are
not removed before the pod ends.
"""

import logging
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from trainer.distributed import Job
from trainer.settings import TrainerSettings
from trainer.snapshots.buffer import SnapshotBuffer, needed_bytes
from trainer.snapshots.folder import VARIABLE
from trainer.snapshots.lease import Lease
from trainer.snapshots.offers import Key
from trainer.snapshots.pool import Pool
from trainer.snapshots.sizes import (
    PEER_BUFFERS,
    BufferPlan,
    buffers_wanted,
    plan_buffers,
    room_in,
)

logger = logging.getLogger(__name__)


def memory_folder(settings: TrainerSettings) -> Path | None:
    """Where PID 1 lets this pod's snapshots lie; None for a run that takes none."""
    where = os.environ.get(VARIABLE)
    return Path(where) if where and settings.snapshots.enabled else None


class Shelf:
    """This rank's buffers, from one attempt to the next; none until ``open``, and perhaps then."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.folder = memory_folder(settings)
        self.buffers: list[SnapshotBuffer] = []
        self._wanted = buffers_wanted(saves_from_them=settings.checkpoint.mode.is_asynchronous)
        self._pool: Pool | None = None
        self._is_abandoned = False

    def open(
        self,
        job: Job,
        tensors: Sequence[Tensor],
        agreed: str | None,
        received_bytes: int | None = None,
    ) -> bool:
        """An attempt begins, whose ranks still need the snapshots of the name ``agreed``, if any.

        Collective. If one rank has no room, none has buffers.

        Args:
            received_bytes: What copies for other nodes take on this one; None where no rank
                makes any.

        Returns:
            Whether there are buffers to send such copies from, on every rank.
        """
        folder = None if self._is_abandoned else self.folder
        with_peers, plan = self._wanted + PEER_BUFFERS, BufferPlan(0, "")
        if received_bytes is not None:
            plan = planned_buffers(job, tensors, folder, with_peers, received_bytes)
            if plan.num_buffers < with_peers and plan.reason and job.rank == 0:
                logger.warning("No copies of snapshots on other nodes: %s", plan.reason)
        if plan.num_buffers < with_peers:
            plan = planned_buffers(job, tensors, folder, self._wanted)
            if plan.reason and job.rank == 0:
                logger.warning("%s", plan.reason)
        if not self.buffers and folder is not None:
            self.buffers = open_buffers(job, tensors, folder, plan.num_buffers)
        names = [buffer.path.name for buffer in self.buffers]
        index = names.index(agreed) if agreed in names else None
        if self._pool is not None:
            self._pool.restart(index)
        elif self.buffers:
            self._pool = Pool(len(self.buffers), index)
        return received_bytes is not None and job.everyone(len(self.buffers) >= with_peers)

    def get_ready(self, within: float = 0.0) -> None:
        """Go on making the memory ready, and wait for it, ``within`` so many seconds."""
        deadline = time.monotonic() + within
        for buffer in self.buffers:
            buffer.get_ready()
        for buffer in self.buffers:
            buffer.wait(max(0.0, deadline - time.monotonic()))

    @property
    def is_ready(self) -> bool:
        """Whether this rank can copy into its buffers."""
        return self._pool is not None and all(buffer.is_ready for buffer in self.buffers)

    @property
    def has_free(self) -> bool:
        """Whether there is a buffer that nobody needs."""
        return self._pool is not None and self._pool.free is not None

    def begin(self) -> SnapshotBuffer | None:
        """The one to fill now, if any is free."""
        index = self._pool.begin() if self._pool else None
        return None if index is None else self.buffers[index]

    def finish(self) -> None:
        """It is whole on this rank."""
        assert self._pool is not None
        self._pool.finish()

    def agree(self) -> None:
        """It is whole on every rank."""
        if self._pool is not None:
            self._pool.agree()

    @property
    def newest(self) -> Key | None:
        """What the newest is of that all ranks have."""
        index = self._pool.agreed if self._pool else None
        return None if index is None else self._key_of(index)

    def lease(self, key: Key, names: Iterable[str]) -> Lease | None:
        """The snapshot of ``key``, if a buffer holds it; ``names`` are of its tensors.

        To be asked only for what is whole on every rank, and no longer filled.
        """
        if self._pool is None:
            return None
        for index in range(len(self.buffers)):
            if self._key_of(index) == key:
                return Lease(self.buffers[index], names, pool=self._pool, index=index)
        return None

    def _key_of(self, index: int) -> Key | None:
        header = self.buffers[index].header()
        if header is None or not header.is_whole:
            return None
        return header.key.attempt, header.key.step

    @property
    def is_impossible(self) -> bool:
        """Whether this rank has no memory to copy into, and will get none."""
        return not self.buffers or bool(self._failure)

    def give_back(self) -> None:
        """Remove the files: some rank has none, so that no snapshot would be whole."""
        if self._failure:
            logger.warning(
                "No more snapshots in memory, a fault goes back to the last checkpoint: %s; free "
                "memory there or raise its limit, and start the pods anew",
                self._failure,
            )
        for buffer in self.buffers:
            buffer.remove()
        self.abandon()

    @property
    def _failure(self) -> str:
        """Why a buffer will never be ready."""
        return next((buffer.failure for buffer in self.buffers if buffer.failure), "")

    def stop(self) -> None:
        """Leave the memory as ready as it is."""
        for buffer in self.buffers:
            buffer.stop()

    def abandon(self) -> None:
        """This process takes no more snapshots."""
        self.buffers, self._pool, self._is_abandoned = [], None, True


def planned_buffers(
    job: Job,
    tensors: Sequence[Tensor],
    folder: Path | None,
    wanted: int,
    received_bytes: int = 0,
) -> BufferPlan:
    """How many of ``wanted`` every rank has room for, beside ``received_bytes`` of its node.

    Collective: the smallest plan of all; for no buffers if a rank has no ``folder``.
    """
    plan = BufferPlan(0, "")
    if folder is not None:
        plan = plan_buffers(
            needed_bytes(tensors),
            wanted=wanted,
            ranks_here=int(os.environ["LOCAL_WORLD_SIZE"]),
            room=room_in(folder).without(received_bytes),
        )
    return min(job.from_every_rank(plan), key=lambda each: (each.num_buffers, not each.reason))


def open_buffers(
    job: Job, tensors: Sequence[Tensor], folder: Path, num_buffers: int
) -> list[SnapshotBuffer]:
    """As an earlier process of this rank left them here, or new. None if a file cannot be made:
    then no rank takes snapshots, for none of them would be whole."""
    try:
        return [
            SnapshotBuffer.open(folder, f"rank-{job.rank}-{index}", tensors, job.device)
            for index in range(num_buffers)
        ]
    except OSError as error:
        logger.warning("No snapshots in memory: %s", error)
        return []
