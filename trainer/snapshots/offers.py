"""Which step in memory a new attempt goes on from, and who hands each rank its shard.

Every rank offers what it can open itself: its own live tensors, and each whole buffer in
its node's folder, whosever shard is in it. All ranks hear all offers and choose alike.

Not covered: offers of another run, or of a state of another shape, which the ranks leave out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from trainer.checkpoint.layout import Checkpoint

Key: TypeAlias = tuple[int, int]
"""Attempt and step, the order in which states are newer."""

PEER_PREFIX = "peer-"
"""Of the names of files that hold the shard of a rank on another node."""


class Source(StrEnum):
    """The tiers of a state in memory, the nearest first."""

    LIVE = "live"
    SNAPSHOT = "snapshot"
    PEER = "peer"


@dataclass(frozen=True, slots=True, order=True)
class Holding:
    """One copy of one shard, by how many ranks it may ever be offered."""

    node: str
    name: str
    """Of the buffer's file; of the live tensors, what tells the process from others."""


@dataclass(frozen=True, slots=True, order=True)
class Offer:
    """What ``rank`` can hand to the rank whose ``coordinate`` it is."""

    coordinate: int
    """The rank in the mesh whose shard it is."""

    attempt: int
    step: int
    source: Source
    rank: int
    holding: Holding
    sequence: int = 0
    """Of the buffer when it was offered; what has another one since was overwritten."""

    @property
    def key(self) -> Key:
        return self.attempt, self.step


@dataclass(frozen=True, slots=True)
class Choice:
    """The state that all ranks take up."""

    attempt: int
    step: int
    offers: tuple[Offer, ...]
    """By coordinate: whose copy it is filled from."""

    @property
    def key(self) -> Key:
        return self.attempt, self.step

    @property
    def transfers(self) -> tuple[Offer, ...]:
        """Those that must be sent to their rank; the others lie where they are needed."""
        return tuple(offer for offer in self.offers if offer.rank != offer.coordinate)

    @property
    def source(self) -> Source:
        """The outermost tier that any rank needs."""
        return max((offer.source for offer in self.offers), key=list(Source).index)


@dataclass(frozen=True, slots=True)
class Durable:
    """What the run's checkpoints say before memory is asked."""

    newest: Key | None = None
    """Of this run's, whatever is in its files; memory wins if it is not older."""

    goes_back: bool = False
    """The user's wish to go back to a step is still to be obeyed, which memory knows nothing of."""

    newest_valid: Callable[[], Key | None] | None = None
    """That whose files are undamaged. Collective, and reads them all: asked only where ``newest``
    would win over a state in memory."""


def durable_of(found: Sequence[Checkpoint], *, run: str, resume_step: int | None) -> Durable:
    """What the checkpoints ``found``, newest first, say to memory.

    A wish is obeyed once: what the run saved since says so. Until its first save it goes back
    again, whatever is in memory.
    """
    own = [checkpoint.record for checkpoint in found if checkpoint.record.run == run]
    newest = (own[0].attempt, own[0].step) if own else None
    obeyed = bool(own) and own[0].resume_step == resume_step
    return Durable(newest, goes_back=resume_step is not None and not obeyed)


def choose(
    offers: Iterable[Offer],
    *,
    world_size: int,
    durable: Key | None = None,
    struck: frozenset[Key] = frozenset(),
) -> Choice | None:
    """The newest state that is offered for every coordinate; None where ``durable`` is newer.

    The same for the same offers in any order. ``struck`` states are not to be trusted.
    """
    states: dict[Key, dict[int, list[Offer]]] = {}
    for offer in offers:
        if offer.key not in struck and 0 <= offer.coordinate < world_size:
            states.setdefault(offer.key, {}).setdefault(offer.coordinate, []).append(offer)
    whole = (key for key, shards in states.items() if len(shards) == world_size)
    newest = max(whole, default=None)
    if newest is None or (durable is not None and durable > newest):
        return None
    return Choice(*newest, _dealt_out(states[newest]))


def kept_generation(offers: Iterable[Offer], *, world_size: int) -> Key | None:
    """The newest state that peers are to keep until a newer one is on two nodes; None without.

    That is one which two nodes have for every coordinate, and where a node was lost, the newest
    that is whole with what peers have.
    """
    states: dict[Key, dict[int, set[str]]] = {}
    of_peers: set[Key] = set()
    for offer in offers:
        if offer.source is Source.LIVE:
            continue
        nodes = states.setdefault(offer.key, {}).setdefault(offer.coordinate, set())
        nodes.add(offer.holding.node)
        if offer.source is Source.PEER:
            of_peers.add(offer.key)
    whole = [key for key, shards in states.items() if len(shards) == world_size]
    twofold = [key for key in whole if all(len(nodes) > 1 for nodes in states[key].values())]
    return max(twofold, default=max((key for key in whole if key in of_peers), default=None))


def _dealt_out(shards: dict[int, list[Offer]]) -> tuple[Offer, ...]:
    """For each coordinate the nearest copy: what its own rank can open, then the nearest tier.

    What must be sent is spread over those that can send it.
    """
    num_sent: Counter[int] = Counter()
    taken = []
    for coordinate in sorted(shards):
        best = min(shards[coordinate], key=lambda offer: _distance(offer, num_sent[offer.rank]))
        num_sent[best.rank] += best.rank != coordinate
        taken.append(best)
    return tuple(taken)


def _distance(offer: Offer, num_sent: int) -> tuple[bool, int, int, Offer]:
    return offer.rank != offer.coordinate, list(Source).index(offer.source), num_sent, offer
