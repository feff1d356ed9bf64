"""One try to take up a state that all ranks have chosen. Every rank calls every method.

Nothing is written before every rank has opened what it needs or sends.

Not covered: a rank that dies in between, which the others learn from gloo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainer.distributed import Job
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Choice, Holding, Offer, Source
from trainer.snapshots.sources import BufferSource, Files, LiveSource, ShardSource
from trainer.snapshots.transfer import Span, receive, send, span_of


@dataclass(frozen=True, slots=True)
class _Opened:
    failed: frozenset[Holding]
    needs: Span
    has: Mapping[int, Span]
    """By coordinate: the copies that this rank was chosen to hand out."""


@dataclass(frozen=True, slots=True)
class _Copied:
    failed: frozenset[Holding]
    probe_losses: Mapping[int, float | None]


class Taking:
    """``open``, and if nothing failed ``copy``, and if nothing failed the state is taken up."""

    def __init__(
        self,
        choice: Choice,
        *,
        job: Job,
        folder: Path | None,
        files: Files,
        live: Live,
        tensors: Sequence[Tensor],
    ) -> None:
        self.choice = choice
        self._job = job
        self._folder = folder
        self._files = files
        self._live = live
        self._tensors = tensors
        self._sources: dict[Offer, ShardSource] = {}
        self._needs: list[Span] = []
        self.probe_loss: float | None = None
        """Of this rank's shard, once it is taken up."""

    def open(self) -> frozenset[Holding]:
        """Open what this rank hands out, to others or to itself; what is of no use, on any rank."""
        failed = set()
        for offer in self.choice.offers:
            if offer.rank == self._job.rank:
                try:
                    self._sources[offer] = self._opened(offer)
                except OSError:
                    failed.add(offer.holding)
        has = {offer.coordinate: source.span for offer, source in self._sources.items()}
        told = self._job.from_every_rank(
            _Opened(frozenset(failed), needs=span_of(self._tensors), has=has)
        )
        self._needs = [each.needs for each in told]
        misfits = (
            offer.holding
            for offer in self.choice.offers
            if told[offer.rank].has.get(offer.coordinate) != told[offer.coordinate].needs
        )
        return frozenset(misfits).union(*(each.failed for each in told))

    def copy(self) -> frozenset[Holding]:
        """Send, receive and copy; what was overwritten meanwhile on any rank.

        All ranks go through the transfers in the same order, so that none waits for one that
        waits for it.
        """
        rank = self._job.rank
        for offer in self.choice.transfers:
            if offer.rank == rank:
                needs = self._needs[offer.coordinate]
                send(self._sources[offer].read, needs, to=offer.coordinate)
            elif offer.coordinate == rank:
                receive(self._tensors, sender=offer.rank)
        own = self.choice.offers[rank]
        if own.rank == rank:
            self._sources[own].copy_to(self._tensors)
        if self._job.device.type == "cuda":
            torch.cuda.synchronize(self._job.device)
        failed, losses = set(), {}
        for offer, source in self._sources.items():
            losses[offer.coordinate] = source.probe_loss
            if not source.is_as_offered():
                failed.add(offer.holding)
        told = self._job.from_every_rank(_Copied(frozenset(failed), losses))
        self.probe_loss = told[own.rank].probe_losses[rank]
        return frozenset[Holding]().union(*(each.failed for each in told))

    def _opened(self, offer: Offer) -> ShardSource:
        """Raises ``OSError`` where it is gone, or is something else by now."""
        if offer.source is Source.LIVE:
            return LiveSource(self._live)
        assert self._folder is not None
        return BufferSource(offer, self._files.attach(self._folder / offer.holding.name))
