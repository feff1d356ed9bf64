"""The buffers of a rank: how many all ranks have room for, and their files.

Not covered: files of ranks that have moved to another node, which count as room and are
not removed before the pod ends.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from trainer.distributed import Job
from trainer.settings import TrainerSettings
from trainer.snapshots.buffer import SnapshotBuffer, needed_bytes
from trainer.snapshots.folder import VARIABLE
from trainer.snapshots.sizes import BufferPlan, plan_buffers, room_in

logger = logging.getLogger(__name__)


def memory_folder(settings: TrainerSettings) -> Path | None:
    """Where PID 1 lets this pod's snapshots lie; None for a run that takes none."""
    where = os.environ.get(VARIABLE)
    return Path(where) if where and settings.snapshots.enabled else None


def planned_buffers(job: Job, tensors: Sequence[Tensor], folder: Path | None) -> int:
    """How many every rank has room for; 0 if one has no ``folder``. Collective."""
    plan = BufferPlan(0, "")
    if folder is not None:
        ranks_here = int(os.environ["LOCAL_WORLD_SIZE"])
        plan = plan_buffers(needed_bytes(tensors), ranks_here=ranks_here, room=room_in(folder))
    plans = job.from_every_rank(plan)
    if job.rank == 0 and (reasons := [each.reason for each in plans if each.reason]):
        logger.warning("%s", reasons[0])
    return min(each.num_buffers for each in plans)


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


def failure_of(buffers: Sequence[SnapshotBuffer]) -> str:
    """Why one of a rank's will never be ready; empty while nothing speaks against it."""
    return next((buffer.failure for buffer in buffers if buffer.failure), "")


def give_back(buffers: Sequence[SnapshotBuffer]) -> None:
    """Remove them all: some rank has none, so that no snapshot would be whole."""
    if failure := failure_of(buffers):
        logger.warning(
            "No more snapshots in memory, a fault goes back to the last checkpoint: %s; free "
            "memory there or raise its limit, and start the pods anew",
            failure,
        )
    for buffer in buffers:
        buffer.remove()
