"""Finds room for a save and makes its folder, or says in words why not; on all ranks alike."""

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from trainer.checkpoint import layout
from trainer.checkpoint.deletions import Deletions
from trainer.checkpoint.retention import debris, find
from trainer.distributed import Job, Votes
from trainer.state import TrainState, local_shard

POLL_SECONDS = 0.005
_MARGIN_BYTES = 1 << 20
_MARGIN_FRACTION = 0.01
"""What a save takes beyond the values themselves: headers, metadata, the record."""


class Room:
    """Every rank calls every method, at the same point of the loop."""

    def __init__(
        self,
        root: Path,
        *,
        job: Job,
        state: TrainState,
        deletions: Deletions,
        report_progress: Callable[[], None],
        drained_by: Callable[[], float],
    ) -> None:
        self._root = root
        self._place = _place(root)
        self._job = job
        self._state = state
        self._deletions = deletions
        self._report_progress = report_progress
        self._drained_by = drained_by
        self._needed_bytes: float | None = None

    def make(self, folder: Path, *, order: tuple[int, int], within: float) -> str:
        """Make ``folder`` where a save fits; why it does not on any rank, or nothing.

        Where it does not fit at first, what is being deleted is waited for, ``within`` seconds
        at most, and what saves before this attempt and step, its ``order``, left behind is
        deleted too.
        """
        if self._needed_bytes is None:
            self._needed_bytes = self._bytes_of_all_ranks()
        if self._job.everyone(not self._try(folder)):
            return ""
        if self._job.rank == 0:
            with contextlib.suppress(OSError):  # then there is no room, which the next look says
                left = debris(find(self._root), before=order)
                self._deletions.add(left, unless_committed=True)
        self.wait_for_deletions(within=within)
        problem = self._try(folder)
        if self._job.everyone(not problem):
            return ""
        return problem or "another rank has no room or no time, or cannot make the folder"

    def refuse_another_place(self) -> None:
        """After a file system is lost, what was its mount point is a folder of the node's own.

        Raises:
            OSError: the folder of the checkpoints is gone or not the one that it was.
        """
        if _place(self._root) != self._place:
            raise FileNotFoundError(
                errno.ENOENT,
                "is not the folder that it was; its file system is lost",
                str(self._root),
            )

    def wait_for_deletions(self, *, within: float) -> None:
        """Return on all ranks once rank 0 deletes nothing any more, or after ``within`` seconds."""
        deadline = time.monotonic() + within
        agreed = Votes(writing=1.0)
        while agreed.writing and not agreed.late:
            late = time.monotonic() > min(deadline, self._drained_by())
            votes = Votes(writing=float(not self._deletions.is_done()), late=float(late))
            agreed = self._job.agree(votes)
            self._report_progress()  # a long wait for storage is no hang
            time.sleep(POLL_SECONDS if agreed.writing else 0)

    def _try(self, folder: Path) -> str:
        assert self._needed_bytes is not None
        needed = self._needed_bytes * (1 + _MARGIN_FRACTION) + _MARGIN_BYTES
        if folder in self._deletions:
            return f"{folder}: an earlier save of this step is still being deleted"
        if time.monotonic() > self._drained_by():
            return "the pod must end, and no time is left for another save"
        try:
            self.refuse_another_place()
            free = layout.free_bytes(self._root)
            if free < needed:
                return (
                    f"{self._root}: a save needs {needed / 1e6:.1f} MB "
                    f"and {free / 1e6:.1f} MB are free"
                )
            # Never its parents: a run's folder that vanished may be a mount point that lost
            # its file system, and what is written below it lands on the node's own disk.
            folder.mkdir(exist_ok=True)
        except OSError as error:
            return f"{error.filename or folder}: {error.strerror}"
        return ""

    def _bytes_of_all_ranks(self) -> float:
        """Collective. Names, shapes and types stay the same, so once an attempt is enough."""
        shards = (local_shard(tensor) for tensor in self._state.tensors().values())
        own = sum(shard.numel() * shard.element_size() for shard in shards)
        total = torch.tensor([own], dtype=torch.float64)
        dist.all_reduce(total)
        return total.item()


def _place(folder: Path) -> tuple[int, int]:
    """The same for as long as it is the same folder of the same file system."""
    status = folder.stat()
    return status.st_dev, status.st_ino
