"""Where a shard in memory is copied or sent from: a buffer's file, or tensors kept live.

Not covered: a process that writes into a buffer and leaves the sequence number as it is.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from trainer.snapshots.buffer import found_in
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, unpack
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Offer
from trainer.snapshots.transfer import Span, fill, pack, span_of


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
        """The whole ones, whosever shard is in them. Raises ``OSError``."""

    def attach(self, path: Path) -> Buffer:
        """Raises ``OSError`` where the file is gone or cannot be mapped."""


class NodeFiles:
    """The files as they lie there; those that this process has open already are used as such."""

    def __init__(self, opened: Mapping[Path, Buffer] = MappingProxyType({})) -> None:
        """``opened`` is by path: to copy from one that is pinned is faster."""
        self._opened = opened

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        return found_in(folder)

    def attach(self, path: Path) -> Buffer:
        return self._opened.get(path) or MappedFile(path)


class MappedFile:
    """A buffer's file, whosever it is and whatever shapes are in it."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError`` where it is gone or cannot be mapped."""
        try:
            with path.open("r+b") as file:  # torch maps nothing that is read-only
                self._mapping = mmap.mmap(file.fileno(), 0)
        except ValueError as error:
            raise OSError(f"{path}: {error}") from error
        self._values = torch.frombuffer(self._mapping, dtype=torch.uint8)

    @property
    def values(self) -> Tensor:
        return self._values

    def header(self) -> Header | None:
        return unpack(self._mapping[:HEADER_BYTES])


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

    def copy_to(self, tensors: Sequence[Tensor]) -> None:
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

    def copy_to(self, tensors: Sequence[Tensor]) -> None:
        fill(tensors, [(self.span, self.read(self.span))])

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
    probe_loss: float | None = None

    @property
    def span(self) -> Span:
        return span_of(self._tensors)

    def read(self, piece: Span) -> Tensor:
        return pack(self._tensors, piece)

    def copy_to(self, tensors: Sequence[Tensor]) -> None:
        self.live.copy_to(tensors)

    def is_as_offered(self) -> bool:
        return True

    @property
    def _tensors(self) -> Sequence[Tensor]:
        assert self.live.kept is not None
        return self.live.kept.tensors
