"""A rank's snapshots: taken beside its steps, and gone on from after a failure.

In a step the loop calls ``start`` before the forward pass, ``fence`` before it waits for the
GPU, ``finish`` before the update, and after the agreement ``agreed``. So the copy of a state
runs beside the step after it, is known to be complete before that step changes anything, and
is known to all ranks before the copy before it may be overwritten.

Outlives attempts within its process. Every rank calls each method at the same point, but
``close``. Not covered: memory of a rank that has moved to another node, which stays there
until the pod ends.
"""

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.distributed import Job, Votes
from trainer.settings import TrainerSettings
from trainer.snapshots import shelf
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.cadence import Cadence
from trainer.snapshots.copier import Copier, Copy, copier_for
from trainer.snapshots.doubts import DoubtfulState, Probe, strike
from trainer.snapshots.gate import Gate
from trainer.snapshots.header import SnapshotKey
from trainer.snapshots.identity import identity_of
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Durable
from trainer.snapshots.pool import Pool
from trainer.snapshots.restore import MemoryRestorer, Restored
from trainer.snapshots.sources import NodeFiles
from trainer.state import TrainState, local_shard

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attempt:
    job: Job
    state: TrainState
    number: int
    identity: bytes
    tensors: tuple[Tensor, ...]
    """Local ones, in the order of the state."""

    copier: Copier
    cadence: Cadence
    probe: Probe | None = None
    copy: Copy | None = None
    is_first_step: bool = True
    is_ready: bool = False
    """Whether all ranks can take one."""

    filled: SnapshotBuffer | None = None
    """What ``copy`` fills."""


class Snapshots:
    def __init__(self, settings: TrainerSettings) -> None:
        self.gate = Gate()
        """Closed before an abort; the loop asks it before each update."""

        self._settings = settings
        self._folder = shelf.memory_folder(settings)
        self._live = Live()
        self._buffers: list[SnapshotBuffer] = []
        self._pool: Pool | None = None
        self._takes_any = self._folder is not None
        self._attempt: _Attempt | None = None

    def make_room(self, device: torch.device) -> None:
        """Before the model is built: what the attempt before left must not keep it from that."""
        self._live.let_go_if_tight(device)

    def begin(
        self, job: Job, state: TrainState, *, attempt: int, fingerprint: Mapping[str, Any]
    ) -> None:
        """An attempt begins; nothing of the one before it can run any more."""
        self.gate.open()
        named = state.tensors()
        self._attempt = _Attempt(
            job=job,
            state=state,
            number=attempt,
            identity=identity_of(
                run=self._settings.run_directory.absolute().name,
                world_size=job.world_size,
                layout=[(name, each.shape, str(each.dtype)) for name, each in named.items()],
                fingerprint=fingerprint,
            ),
            tensors=tuple(local_shard(tensor).detach() for tensor in named.values()),
            copier=copier_for(job.device, state.model),
            cadence=Cadence(
                budget=self._settings.snapshots.budget,
                fixed_interval=self._settings.snapshots.interval_steps,
            ),
        )

    def restore(self, durable: Durable) -> Restored | None:
        """Fill the state from memory; None where the durable tier is newer, or nothing is there.

        Raises:
            DoubtfulState: as ``MemoryRestorer.restore`` does.
        """
        this = self._this
        restorer = MemoryRestorer(
            job=this.job,
            node=f"{socket.gethostname()}:{self._folder}",
            folder=self._folder,
            identity=this.identity,
            live=self._live,
            files=NodeFiles({buffer.path: buffer for buffer in self._buffers}),
        )
        restored = restorer.restore(this.tensors, durable)
        this.probe = restored.probe if restored else None
        self._open_buffers(restored.buffer if restored else None)
        return restored

    def start(self) -> None:
        """Begin to copy the state as it is now, if that is due."""
        this, pool = self._this, self._pool
        step = this.state.step
        assert step is not None
        if pool is None or not this.is_ready or not this.cadence.is_due(step):
            return
        index = pool.begin()
        if index is None:
            return
        buffer = this.filled = self._buffers[index]
        key = SnapshotKey(this.job.rank, this.number, step, this.job.world_size, this.identity)
        buffer.begin(key)
        this.copy = this.copier.start(this.tensors, buffer.tensors)

    def fence(self) -> None:
        """The host's next wait for the GPU includes the copy.

        Raises:
            OSError: it failed.
        """
        self._this.copier.fence()

    def finish(self, loss: float) -> None:
        """After that wait: the snapshot is whole on this rank. ``loss`` is its own of this step.

        Raises:
            DoubtfulState: it is not the loss that this step had before.
        """
        this = self._this
        self._check(loss)
        if this.filled is not None:
            assert self._pool is not None
            this.filled.finish(loss)
            self._pool.finish()

    def votes(self) -> Votes:
        """Whether this rank can take snapshots, and whether it has just finished one."""
        copy = self._this.copy
        return Votes(
            snapshot_ready=float(all(b.is_ready for b in self._buffers) if self._pool else False),
            snapshot_impossible=float(not self._buffers or bool(shelf.failure_of(self._buffers))),
            snapshot_whole=float(copy is not None),
            copy_seconds=(copy and copy.seconds()) or 0.0,
        )

    def agreed(self, votes: Votes) -> None:
        """The step's agreement is there."""
        this, num_ranks = self._this, self._this.job.world_size
        if this.is_first_step:  # not before: pinning memory would make it seconds longer
            this.is_first_step = False
            for buffer in self._buffers:
                buffer.get_ready()
        this.is_ready = votes.snapshot_ready == num_ranks
        is_whole = votes.snapshot_whole == num_ranks
        this.cadence.count_step(
            votes.seconds / num_ranks,
            copied=votes.snapshot_whole > 0,
            copy_seconds=votes.copy_seconds / num_ranks if is_whole else None,
        )
        this.copy = this.filled = None
        if is_whole and self._pool is not None:
            self._pool.agree()
        if self._buffers and votes.snapshot_impossible > 0:
            shelf.give_back(self._buffers)
            self._take_no_more()

    @property
    def is_pinning(self) -> bool:
        """Whether memory is still being made ready on some rank, which makes steps slower."""
        return bool(self._buffers) and not self._this.is_ready

    def close(self) -> None:
        """The attempt ends, however: no copy goes on, and what the state holds is kept."""
        this, self._attempt = self._attempt, None
        if this is None:
            return
        if not this.copier.close():
            # Something may still write into one of them.
            logger.warning("A copy of the state does not end; no more snapshots in this process")
            self._take_no_more()
        for buffer in self._buffers:
            buffer.stop()
        if self._settings.snapshots.enabled and self._settings.recovery.layer.reenters:
            self._live.keep(
                this.tensors,
                coordinate=this.job.rank,
                attempt=this.number,
                step=this.state.step,
                identity=this.identity,
            )

    def _take_no_more(self) -> None:
        self._buffers, self._pool, self._takes_any = [], None, False

    @property
    def _this(self) -> _Attempt:
        assert self._attempt is not None
        return self._attempt

    def _check(self, loss: float) -> None:
        this = self._this
        probe, this.probe = this.probe, None
        if probe is None:
            return
        try:
            probe.check(loss)
        except DoubtfulState:
            this.state.step = None  # nobody goes on from it
            if self._folder is not None:
                strike(self._folder, probe.attempt, probe.step)
            raise

    def _open_buffers(self, agreed: str | None) -> None:
        """``agreed`` is the one that all ranks still need."""
        this, folder = self._this, self._folder if self._takes_any else None
        num_buffers = shelf.planned_buffers(this.job, this.tensors, folder)
        if not self._buffers and folder is not None:
            self._buffers = shelf.open_buffers(this.job, this.tensors, folder, num_buffers)
        names = [buffer.path.name for buffer in self._buffers]
        index = names.index(agreed) if agreed in names else None
        if self._pool is not None:
            self._pool.restart(index)
        elif self._buffers:
            self._pool = Pool(len(self._buffers), index)
