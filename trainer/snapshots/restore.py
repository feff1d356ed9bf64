"""Takes up the newest state that the ranks hold in memory, with all ranks alike.

Nothing is written before every rank has opened what it needs or sends. After the copies
each buffer's header is read again: had it been filled anew meanwhile, what was copied
would be torn. A copy that fails on any rank is struck, and all ranks choose again.

Not covered: snapshots that are whole and wrong, which only the probe may show.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from trainer.distributed import Job
from trainer.snapshots.doubts import DoubtfulState, Probe, strike, struck_in
from trainer.snapshots.live import Live
from trainer.snapshots.offers import (
    PEER_PREFIX,
    Durable,
    Holding,
    Key,
    Offer,
    Source,
    choose,
    kept_generation,
)
from trainer.snapshots.sources import Files, NodeFiles
from trainer.snapshots.taking import Taking
from trainer.state import local_shard

logger = logging.getLogger(__name__)

MAX_TRIES = 8
"""Each may take as long as a whole restore; then the durable tier is the shorter way."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the ranks go on from: the same on every rank, but for ``probe`` and ``buffer``."""

    attempt: int
    step: int
    source: Source
    """The outermost tier that any rank needed."""

    num_sent: int
    """Shards that came from another process."""

    probe: Probe
    """To check in the first step, on this rank."""

    buffer: str | None
    """The file of this node with this rank's part of the newest snapshot that all ranks have:
    until there is a newer one it must not be filled. None where the part is elsewhere."""

    kept: Key | None = None
    """The generation that peers are to keep until they have a newer one."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a rank tells the others before they choose."""

    identity: bytes
    durable: Durable
    offers: tuple[Offer, ...]
    struck: frozenset[Key]


@dataclass(frozen=True, slots=True)
class MemoryRestorer:
    """Every rank calls ``restore``, at the same point."""

    job: Job
    node: str
    """The same for ranks that see the same folder, and for them alone."""

    folder: Path | None
    """Of the node's snapshots; None where there are none."""

    identity: bytes
    """Of the run: what has another one is of other settings, or of another shape."""

    live: Live
    files: Files = field(default_factory=NodeFiles)

    def restore(self, tensors: Iterable[Tensor], durable: Durable) -> Restored | None:
        """Fill ``tensors`` from memory and let go of what is live; None: the durable tier is due.

        What rank 0 knows of the durable tier, all go by. After None the tensors may hold
        anything if there is a checkpoint, and are as they were if there is none.

        Raises:
            DoubtfulState: on every rank; all candidates failed after the tensors were written
                to, and without a checkpoint the run would begin anew from such values.
        """
        told = self.job.from_every_rank(self._told(durable))
        restored = None
        if any(each.identity != told[0].identity for each in told):
            logger.warning("Nothing is taken from memory: the ranks differ in settings or layout")
        elif not told[0].durable.goes_back:
            local = [local_shard(tensor).detach() for tensor in tensors]
            restored = self._newest(told, local, durable.newest_valid)
        self.live.let_go()
        return restored

    def _newest(
        self,
        told: Sequence[_Told],
        tensors: Sequence[Tensor],
        newest_valid: Callable[[], Key | None] | None,
    ) -> Restored | None:
        durable = told[0].durable.newest
        struck = frozenset[Key]().union(*(each.struck for each in told))
        offers = [offer for each in told for offer in each.offers]
        remembered = choose(offers, world_size=self.job.world_size, struck=struck)
        if newest_valid and remembered and durable and durable > remembered.key:
            durable = newest_valid()
        spoiled: set[Key] = set()
        for _ in range(MAX_TRIES):
            choice = choose(offers, world_size=self.job.world_size, durable=durable, struck=struck)
            if choice is None:
                break
            taking = Taking(
                choice,
                job=self.job,
                folder=self.folder,
                files=self.files,
                live=self.live,
                tensors=tensors,
            )
            failed = taking.open()
            if not failed:
                spoiled.add(choice.key)
                failed = taking.copy()
            if not failed:
                return self._restored(taking, [each for each in offers if each.key not in struck])
            names = ", ".join(f"{each.name} on {each.node}" for each in sorted(failed))
            logger.warning("Step %d was not taken from memory: %s", choice.step, names)
            offers = [offer for offer in offers if offer.holding not in failed]
        if spoiled and durable is None:
            self._refuse_to_begin_anew(spoiled)
        return None

    def _restored(self, taken: Taking, offers: Sequence[Offer]) -> Restored:
        choice = taken.choice
        words = "Going on from step %d (attempt %d), which was in memory (%s)"
        logger.info(words, choice.step, choice.attempt, choice.source)
        probe = Probe(*choice.key, taken.probe_loss, self.job.device.type)
        return Restored(
            *choice.key,
            choice.source,
            num_sent=len(choice.transfers),
            probe=probe,
            buffer=self._own_buffer(offers),
            kept=kept_generation(offers, world_size=self.job.world_size),
        )

    def _refuse_to_begin_anew(self, spoiled: Iterable[Key]) -> None:
        for attempt, step in spoiled:
            if self.folder is not None:
                strike(self.folder, attempt, step)
        raise DoubtfulState(
            "every state in memory was lost while it was copied, and there is no checkpoint; "
            "the next attempt begins anew"
        )

    def _own_buffer(self, offers: Iterable[Offer]) -> str | None:
        snapshots = (offer for offer in offers if offer.source is not Source.LIVE)
        newest = choose(snapshots, world_size=self.job.world_size)
        own = newest and newest.offers[self.job.rank]
        return own.holding.name if own and own.rank == self.job.rank else None

    def _told(self, durable: Durable) -> _Told:
        offers = list(self._live_offers())
        struck = frozenset[Key]()
        try:
            if self.folder is not None:
                offers += self._snapshot_offers(self.folder)
                struck = struck_in(self.folder)
        except OSError as error:
            logger.warning("The snapshots of this node cannot be seen: %s", error)
        words = replace(durable, newest_valid=None)  # each rank has its own way to ask
        return _Told(self.identity, words, tuple(offers), struck)

    def _live_offers(self) -> Iterator[Offer]:
        rank, kept = self.job.rank, self.live.kept
        if kept is not None and kept.identity == self.identity:
            holding = Holding(self.node, f"the tensors of rank {rank}")
            yield Offer(kept.coordinate, *kept.key, Source.LIVE, rank, holding)

    def _snapshot_offers(self, folder: Path) -> Iterator[Offer]:
        for path, header in self.files.found_in(folder):
            key = header.key
            if (key.identity, key.world_size) == (self.identity, self.job.world_size):
                is_peer = path.name.startswith(PEER_PREFIX)
                yield Offer(
                    key.coordinate,
                    key.attempt,
                    key.step,
                    Source.PEER if is_peer else Source.SNAPSHOT,
                    self.job.rank,
                    Holding(self.node, path.name),
                    header.sequence,
                )
