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
from typing import Any

import torch

from trainer.distributed import Job, Votes
from trainer.peers.generations import PeerVotes
from trainer.settings import TrainerSettings
from trainer.snapshots.attempt import Attempt, attempt_of
from trainer.snapshots.doubts import DoubtfulState, strike
from trainer.snapshots.gate import Gate
from trainer.snapshots.lease import Lease
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Durable
from trainer.snapshots.peer_tier import open_shelf
from trainer.snapshots.restore import MemoryRestorer, Restored
from trainer.snapshots.shelf import Shelf
from trainer.snapshots.sources import NodeFiles
from trainer.state import TrainState

logger = logging.getLogger(__name__)


class Snapshots:
    def __init__(self, settings: TrainerSettings) -> None:
        self.gate = Gate()
        """Closed before an abort; the loop asks it before each update."""

        self._settings = settings
        self._live = Live()
        self._shelf = Shelf(settings)
        self._attempt: Attempt | None = None

    def make_room(self, device: torch.device) -> None:
        """Before the model is built: what the attempt before left must not keep it from that."""
        self._live.let_go_if_tight(device)

    def begin(
        self, job: Job, state: TrainState, *, attempt: int, fingerprint: Mapping[str, Any]
    ) -> None:
        """An attempt begins; nothing of the one before it can run any more."""
        self.gate.open()
        self._attempt = attempt_of(
            self._settings, job, state, number=attempt, fingerprint=fingerprint
        )

    def restore(self, durable: Durable) -> Restored | None:
        """Fill the state from memory; None where the durable tier is newer, or nothing is there.

        Raises:
            DoubtfulState: as ``MemoryRestorer.restore`` does.
        """
        this, folder = self._this, self._shelf.folder
        node = f"{socket.gethostname()}:{folder}"
        restorer = MemoryRestorer(
            job=this.job,
            node=node,
            folder=folder,
            identity=this.identity,
            live=self._live,
            files=NodeFiles({buffer.path: buffer for buffer in self._shelf.buffers}),
        )
        restored = restorer.restore(this.values, durable)
        this.probe = restored.probe if restored else None
        this.peers = open_shelf(
            self._settings,
            this.job,
            self._shelf,
            node=node,
            attempt=this.number,
            tensors=this.tensors,
            restored=restored,
        )
        return restored

    def want(self, step: int) -> None:
        """The state after ``step``, the newest, is to be taken beside the next step."""
        self._this.wanted = step

    def start(self) -> None:
        """Begin to copy the state as it is now, if that is due."""
        this, step = self._this, self._this.state.step
        assert step is not None
        if this.is_due(step) and (buffer := self._shelf.begin()):
            this.begin_copy(step, buffer)

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
        self._check(loss)
        self._finish_copy(loss)

    def votes(self) -> Votes:
        """Whether this rank can take snapshots, and whether it has just finished one."""
        copy = self._this.copy
        peers = self._this.peers.votes() if self._this.peers else PeerVotes()
        return Votes(
            snapshot_ready=float(self._shelf.is_ready),
            snapshot_impossible=float(self._shelf.is_impossible),
            snapshot_whole=float(copy is not None),
            peer_due=peers.due,
            peer_sent=peers.sent,
            peer_failed=peers.failed,
            copy_seconds=(copy and copy.seconds()) or 0.0,
        )

    def agreed(self, votes: Votes) -> None:
        """The step's agreement is there."""
        this, num_ranks = self._this, self._this.job.world_size
        if this.is_first_step:  # not before: pinning memory would make it seconds longer
            this.is_first_step = False
            self._shelf.get_ready()
        this.is_ready = votes.snapshot_ready == num_ranks
        is_whole = votes.snapshot_whole == num_ranks
        this.cadence.count_step(
            votes.seconds / num_ranks,
            copied=votes.snapshot_whole > 0,
            copy_seconds=votes.copy_seconds / num_ranks if is_whole else None,
        )
        self._end_copy(is_whole)
        if this.peers is not None:
            this.peers.agreed(votes, self._shelf.newest if is_whole else None)
        if self.have_buffers and votes.snapshot_impossible > 0:
            self._shelf.give_back()

    def take_now(self, within: float) -> Lease | None:
        """Copy the state while training waits; None where a rank has no memory for it.

        Memory that is still being made ready is waited for, ``within`` so many seconds.

        Raises:
            OSError: the copy failed.
        """
        this, step = self._this, self._this.state.step
        assert step is not None
        self._shelf.get_ready(within)
        if not this.job.everyone(self._shelf.is_ready and self._shelf.has_free):
            return None
        buffer = self._shelf.begin()
        assert buffer is not None
        this.begin_copy(step, buffer)
        this.copier.fence()
        if this.job.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self._finish_copy(None)
        votes = this.job.agree(self.votes())
        self._end_copy(votes.snapshot_whole == this.job.world_size)
        return self.lease(step)

    def lease(self, step: int) -> Lease | None:
        """The snapshot of ``step`` by this attempt, if it is the newest that all ranks have."""
        key = self._this.number, step
        return self._shelf.lease(key, self._this.tensors) if self._shelf.newest == key else None

    @property
    def are_taken(self) -> bool:
        """Whether all ranks can take them beside their steps; the same on every rank."""
        return self._this.is_ready

    @property
    def have_buffers(self) -> bool:
        """Whether this rank has memory for them, ready or not."""
        return bool(self._shelf.buffers)

    @property
    def has_free_buffer(self) -> bool:
        """Whether this rank has one that nobody needs."""
        return self._shelf.has_free

    @property
    def is_pinning(self) -> bool:
        """Whether memory is still being made ready on some rank, which makes steps slower."""
        return self.have_buffers and not self._this.is_ready

    def close(self) -> None:
        """The attempt ends, however: no copy goes on, and what the state holds is kept."""
        this, self._attempt = self._attempt, None
        if this is None:
            return
        if not this.copier.close():
            logger.warning("A copy of the state does not end; no more snapshots in this process")
            self._shelf.abandon()
        self._shelf.stop()
        if this.peers is not None:
            this.peers.close()
        if self._settings.snapshots.enabled and self._settings.recovery.layer.reenters:
            self._live.keep(
                this.values,
                coordinate=this.job.rank,
                attempt=this.number,
                step=this.state.step,
                identity=this.identity,
            )

    def _finish_copy(self, probe_loss: float | None) -> None:
        if self._this.filled is not None:
            self._this.filled.finish(probe_loss)
            self._shelf.finish()

    def _end_copy(self, is_whole: bool) -> None:
        self._this.copy = self._this.filled = None
        if is_whole:
            self._shelf.agree()

    @property
    def _this(self) -> Attempt:
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
            if self._shelf.folder is not None:
                strike(self._shelf.folder, probe.attempt, probe.step)
            raise
