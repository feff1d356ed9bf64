"""The process group of one attempt, and the one collective in which its ranks agree.

Gloo carries the agreement on every device, so that a rank's host never waits
for a GPU kernel to learn what the others decided. NCCL carries the shards.
"""

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.timeouts import Timeouts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Votes:
    """What each rank says at the end of a step; agreed, the sums over all ranks."""

    loss: float = 0.0
    stop: float = 0.0
    """1 from a rank whose pod was told to stop."""

    late: float = 0.0
    """1 from a rank that may wait no longer for what others still do."""

    writing: float = 0.0
    """1 from a rank whose part of a save is not durable yet."""

    failed: float = 0.0
    """1 from a rank whose part of a save cannot become durable."""

    snapshot_ready: float = 0.0
    """1 from a rank that can copy its state into memory."""

    snapshot_impossible: float = 0.0
    """1 from a rank that has no memory for such copies and will get none."""

    snapshot_whole: float = 0.0
    """1 from a rank that has just finished such a copy."""

    peer_due: float = 0.0
    """1 from rank 0 when snapshots are to be copied to other nodes."""

    peer_sent: float = 0.0
    """1 from a rank whose snapshot is on another node."""

    peer_failed: float = 0.0
    """1 from a rank whose snapshot did not get there."""

    seconds: float = 0.0
    """That the step took, until this vote."""

    copy_seconds: float = 0.0
    """That the copy took which this rank has just finished."""


@dataclass(frozen=True, slots=True)
class Job:
    """This rank's place in the job, for one attempt."""

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh

    def agree(self, votes: Votes) -> Votes:
        """Sum the votes of all ranks. Collective: every rank calls it at the same point."""
        names = [field.name for field in fields(Votes)]
        ballot = torch.tensor([getattr(votes, name) for name in names], dtype=torch.float64)
        dist.all_reduce(ballot)
        return Votes(**dict(zip(names, ballot.tolist(), strict=True)))

    def everyone(self, holds: bool) -> bool:
        """Whether ``holds`` is true on every rank. Collective."""
        doubts = torch.tensor([0.0 if holds else 1.0], dtype=torch.float64)
        dist.all_reduce(doubts)
        return doubts.item() == 0.0

    def from_rank_zero(self, value: T) -> T:
        """What rank 0 passed. Collective."""
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def from_every_rank(self, value: T) -> list[T]:
        """What each rank passed, in the order of the ranks. Collective."""
        told: list[Any] = [None] * self.world_size
        dist.all_gather_object(told, value)
        return told

    def expect_progress(self, timeouts: Timeouts) -> None:
        """From here on a collective that takes longer than a step's share has failed.

        The group starts with the long timeout, since ranks reach the first
        collective as far apart as their imports and restores.
        """
        dist.barrier()
        self._limit(agreement=timeouts.agreement_seconds, collective=timeouts.collective_seconds)

    def allow_long_phase(self, timeouts: Timeouts) -> None:
        """Until ``expect_progress``, ranks may reach a collective far apart again."""
        self._limit(agreement=timeouts.barrier_seconds, collective=timeouts.barrier_seconds)

    def _limit(self, *, agreement: float, collective: float) -> None:
        # No public way to change the timeout of a group exists (pytorch 2.13).
        limits = {"cpu": agreement, self.device.type: collective}
        group = dist.group.WORLD
        assert group is not None
        for device_type, seconds in limits.items():
            backend = group._get_backend(torch.device(device_type))
            backend._set_default_timeout(datetime.timedelta(seconds=seconds))


@contextmanager
def process_group(device_type: str, timeouts: Timeouts, store: dist.Store | None) -> Iterator[Job]:
    """Join the job's process group; leave it however the block ends.

    ``store`` is where the ranks meet, or None for the launcher's own.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if device_type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    startup = datetime.timedelta(seconds=timeouts.barrier_seconds)
    backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
    if store is None:
        dist.init_process_group(backend, timeout=startup)
    else:
        dist.init_process_group(
            backend, timeout=startup, store=store, rank=rank, world_size=world_size
        )
    mesh = None
    try:
        mesh = init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))
        yield Job(rank=rank, world_size=world_size, device=device, mesh=mesh)
    except BaseException:
        # NCCL's own farewell waits for ranks that may never come. Whoever goes on in this
        # process aborts the group first, and a process that ends needs no farewell.
        _leave(mesh, destroy=device_type == "cpu")
        raise
    _leave(mesh, destroy=True)


def _leave(mesh: DeviceMesh | None, *, destroy: bool) -> None:
    # DTensor's caches keep the mesh, and the mesh the group, whose open sockets would
    # keep the other ranks waiting for us (pytorch 2.12 and later).
    getattr(mesh, "_pg_registry", {}).clear()
    if destroy and dist.is_initialized():
        dist.destroy_process_group()
