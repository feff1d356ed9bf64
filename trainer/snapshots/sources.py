"""Where a shard in memory is copied or sent from: a buffer's file, or tensors kept live.

Not covered: a process that writes into a buffer and leaves the sequence number as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from trainer.checkpoint.staging import Slot
from trainer.snapshots.header import PAGE_BYTES, Header
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Offer
from trainer.snapshots.transfer import Span, pack, span_of, unpack


class Buffer(Protocol):
    """A snapshot's file, mapped."""

    @property
    def values(self) -> Tensor:
        """All bytes of the file, as uint8."""

    def header(self) -> Header | None:
        """As it is now; None where there is none."""


class Files(Protocol):
    """How the snapshots in a node's folder are found and read."""

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        """The whole ones, whosever shard is in them."""

    def attach(self, path: Path) -> Buffer:
        """Raises ``OSError`` where the file is gone or cannot be mapped."""

    def slots_of(self, tensors: Sequence[Tensor]) -> Sequence[Slot]:
        """Where in a buffer's file the tensors of a shard lie, each at a multiple of 64 bytes."""


class ShardSource(Protocol):
    """A copy of one shard, opened by the rank that offered it."""

    @property
    def probe_loss(self) -> float | None:
        """What its rank saw as the loss of the step after it, if that was noted."""

    @property
    def span(self) -> Span:
        """The bytes that it has, by their places in a buffer's file."""

    def read(self, piece: Span) -> Tensor:
        """These bytes, on the CPU."""

    def copy_to(self, slots: Sequence[Slot], tensors: Sequence[Tensor]) -> None:
        """Fill local tensors, of which it is the shard."""

    def is_as_offered(self) -> bool:
        """Whether nobody has written to it since it was offered."""


class BufferSource:
    """A snapshot's file."""

    def __init__(self, offer: Offer, buffer: Buffer) -> None:
        """Raises ``OSError`` where the buffer no longer holds what was offered."""
        self._offer = offer
        self._buffer = buffer
        header = buffer.header()
        if header is None or not self._is_meant(header):
            raise OSError(f"{offer.holding.name} was filled anew since it was offered")
        self.probe_loss = header.probe_loss
        self.span = Span(PAGE_BYTES, PAGE_BYTES + header.payload_bytes)

    def read(self, piece: Span) -> Tensor:
        return self._buffer.values[piece.start : piece.end]

    def copy_to(self, slots: Sequence[Slot], tensors: Sequence[Tensor]) -> None:
        unpack([(self.span, self.read(self.span))], slots, tensors)

    def is_as_offered(self) -> bool:
        header = self._buffer.header()
        return header is not None and self._is_meant(header)

    def _is_meant(self, header: Header) -> bool:
        offer, key = self._offer, header.key
        return (key.coordinate, key.attempt, key.step, header.sequence) == (
            offer.coordinate,
            offer.attempt,
            offer.step,
            offer.sequence,
        )


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The tensors of this process's attempt before."""

    live: Live
    slots: Sequence[Slot]
    """Where the tensors kept would lie in a buffer's file."""

    probe_loss: float | None = None

    @property
    def span(self) -> Span:
        return span_of(self.slots)

    def read(self, piece: Span) -> Tensor:
        assert self.live.kept is not None
        return pack(piece, self.slots, self.live.kept.tensors)

    def copy_to(self, slots: Sequence[Slot], tensors: Sequence[Tensor]) -> None:  # noqa: ARG002
        self.live.copy_to(tensors)

    def is_as_offered(self) -> bool:
        return True
