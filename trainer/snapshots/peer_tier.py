"""This rank's part in keeping copies of snapshots in the memory of another node.

A generation is copied from a buffer that is held meanwhile, and held on until the next one is
complete: should a node be lost, the other ranks must still have the step that its peers have.

Every rank calls each method at the same point, but ``close``. Not covered: nodes that are
lost while the first generation is being sent, which go back to the durable tier.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from trainer.distributed import Job, Votes
from trainer.peers.generations import Generations, PeerVotes, Turn
from trainer.peers.peering import Peering, Peers, Place
from trainer.settings import TrainerSettings
from trainer.snapshots.buffer import needed_bytes
from trainer.snapshots.lease import Lease
from trainer.snapshots.offers import Key
from trainer.snapshots.restore import Restored
from trainer.snapshots.shelf import Shelf

logger = logging.getLogger(__name__)

_NONE = "No copies of snapshots on other nodes: %s"


class PeerTier:
    """Of one attempt."""

    def __init__(
        self,
        job: Job,
        shelf: Shelf,
        *,
        peers: Peers,
        generations: Generations,
        kept: Lease | None,
        names: Iterable[str],
    ) -> None:
        """``kept`` is this rank's part of the generation that attempts before have sent.

        ``names`` are those of the tensors in a snapshot.
        """
        self._job = job
        self._shelf = shelf
        self._peers = peers
        self._generations = generations
        self._names = tuple(names)
        self._complete = kept
        self._sending: Lease | None = None

    def votes(self) -> PeerVotes:
        """Whether a generation is due, or how this rank's part of it fares."""
        return self._generations.votes(self._peers.poll())

    def agreed(self, votes: Votes, newest: Key | None) -> None:
        """Begin or end a generation. ``newest`` has just become whole on every rank, if any has."""
        told = PeerVotes(votes.peer_due, votes.peer_sent, votes.peer_failed)
        match self._generations.agreed(told, newest):
            case Turn.BEGIN:
                assert newest is not None
                self._begin(newest)
            case Turn.COMPLETE:
                self._release(self._complete)
                self._complete, self._sending = self._sending, None
                if self._job.rank == 0 and self._generations.keep:
                    step = self._generations.keep[1]
                    logger.info("Step %d is in the memory of two nodes for every rank", step)
            case Turn.GIVE_UP:
                if self._peers.failure:
                    words = "This rank's snapshot was not copied to another node: %s"
                    logger.warning(words, self._peers.failure)
                self._release(self._sending)
                self._sending = None
            case Turn.NOTHING:
                pass

    def close(self) -> None:
        """The attempt ends: what is being sent is given up."""
        self._peers.close()

    def _begin(self, newest: Key) -> None:
        self._sending = lease = self._shelf.lease(newest, self._names)
        assert lease is not None
        assert lease.header is not None
        name = Path(lease.shard.path).name
        self._peers.begin(name, lease.header, keep=self._generations.keep)

    def _release(self, lease: Lease | None) -> None:
        if lease is not None:
            lease.release()


def open_shelf(
    settings: TrainerSettings,
    job: Job,
    shelf: Shelf,
    *,
    node: str,
    attempt: int,
    tensors: Mapping[str, Tensor],
    restored: Restored | None,
) -> PeerTier | None:
    """Open ``shelf`` for an attempt; None, on every rank, where its snapshots stay on their node.

    Collective. ``node`` is the same for ranks with the same folder, and for them alone.
    """
    values = tuple(tensors.values())
    peering = _peering(settings, job, shelf, node=node, file_bytes=needed_bytes(values))
    received_bytes = peering.received_bytes(node) if peering else None
    has_room = shelf.open(job, values, restored.buffer if restored else None, received_bytes)
    if peering is None or not has_room:
        return None
    if not job.everyone(_is_told(peering, shelf, node=node, attempt=attempt)):
        return None
    assert shelf.folder is not None
    interval_seconds = settings.snapshots.peer_interval_seconds
    assert interval_seconds is not None
    keep = restored.kept if restored else None
    return PeerTier(
        job,
        shelf,
        peers=Peers(shelf.folder, peering.receiver(job.rank)),
        generations=Generations(
            rank=job.rank,
            world_size=job.world_size,
            interval_seconds=interval_seconds,
            keep=keep,
        ),
        kept=shelf.lease(keep, tensors) if keep else None,
        names=tensors,
    )


def _peering(
    settings: TrainerSettings, job: Job, shelf: Shelf, *, node: str, file_bytes: int
) -> Peering | None:
    """Who copies to which node; None, on every rank, where nobody does. Collective."""
    if not settings.snapshots.enabled or settings.snapshots.peer_interval_seconds is None:
        return None
    place = Place.of(shelf.folder, node=node, file_bytes=file_bytes)
    peering = Peering(job.from_every_rank(place))
    if not peering.reason:
        return peering
    if shelf.folder is not None and peering.has_several_nodes and job.rank == 0:
        logger.warning(_NONE, peering.reason)
    return None


def _is_told(peering: Peering, shelf: Shelf, *, node: str, attempt: int) -> bool:
    """Whether this pod's courier can know what it will receive."""
    assert shelf.folder is not None
    try:
        peering.awaited(node, attempt).write(shelf.folder)
    except OSError as error:
        logger.warning(_NONE, error)
        return False
    return True
