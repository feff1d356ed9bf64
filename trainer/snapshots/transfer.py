"""Sends a shard from the memory of one rank into the tensors of another, in bounded pieces.

What goes over is the payload of a buffer's file, byte by byte, so that who sends a file
need not know what is in it. The pieces are tensors on the CPU, which gloo carries also
where NCCL carries the rest.

Not covered: damage on the way that TCP does not see.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.snapshots.buffer import needed_bytes, places
from trainer.snapshots.header import PAGE_BYTES

PIECE_BYTES = 64 << 20
"""Sent at once, and what a receiver needs on the host. Slots begin at multiples of 64 bytes,
and so does each piece of so many bytes: none cuts through a number."""


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a buffer's file that hold a shard."""

    start: int
    end: int

    def pieces(self) -> Iterator["Span"]:
        for start in range(self.start, self.end, PIECE_BYTES):
            yield Span(start, min(start + PIECE_BYTES, self.end))


def span_of(tensors: Sequence[Tensor]) -> Span:
    """What the local ``tensors`` of a shard take, with the gaps between them."""
    return Span(PAGE_BYTES, needed_bytes(tensors))


def send(read: Callable[[Span], Tensor], span: Span, *, to: int) -> None:
    """Send what ``read`` returns for each piece, bytes on the CPU. The other rank receives."""
    for piece in span.pieces():
        dist.send(read(piece), dst=to)


def receive(tensors: Sequence[Tensor], *, sender: int) -> None:
    """Fill the local ``tensors`` of the shard that is sent, on any device."""
    span = span_of(tensors)
    space = torch.empty(min(PIECE_BYTES, span.end - span.start), dtype=torch.uint8)

    def pieces() -> Iterator[tuple[Span, Tensor]]:
        for piece in span.pieces():
            octets = space[: piece.end - piece.start]
            dist.recv(octets, src=sender)
            yield piece, octets

    fill(tensors, pieces())


def pack(tensors: Sequence[Tensor], piece: Span) -> Tensor:
    """The bytes of ``piece`` as they would be in a buffer's file, from tensors on any device."""
    octets = torch.zeros(piece.end - piece.start, dtype=torch.uint8)
    for part, values in _parts(tensors, piece, octets):
        values.copy_(part)
    return octets


def fill(tensors: Sequence[Tensor], pieces: Iterable[tuple[Span, Tensor]]) -> None:
    """Fill ``tensors`` from pieces of a buffer's file, each of which is used before the next."""
    dense = [tensor.detach().contiguous() for tensor in tensors]  # itself, if it is so already
    for piece, octets in pieces:
        for part, values in _parts(dense, piece, octets):
            part.copy_(values)
    for tensor, filled in zip(tensors, dense, strict=True):
        if not tensor.is_contiguous():
            tensor.detach().copy_(filled)


def _parts(
    tensors: Sequence[Tensor], piece: Span, octets: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """What of each tensor lies in ``piece``, and where in its bytes."""
    slots, _ = places(tensors)
    for slot, tensor in zip(slots, tensors, strict=True):
        size = slot.dtype.itemsize
        start = max(piece.start, slot.offset)
        end = min(piece.end, slot.offset + size * tensor.numel())
        if start < end:
            first, last = (start - slot.offset) // size, (end - slot.offset) // size
            values = octets[start - piece.start : end - piece.start].view(slot.dtype)
            yield tensor.detach().contiguous().view(-1)[first:last], values
