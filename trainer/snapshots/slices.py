"""Cuts the state into slices of equal size, each of a few contiguous pieces, large where it is.

A large tensor is cut where a slice ends, so that no slice holds all of the embedding. The
pieces are views: the same memory as the tensors.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

WIDEST_BYTES = 16
"""Of one value of any type."""


class Piece(NamedTuple):
    """Flat, and alike in length and type."""

    source: Tensor
    target: Tensor

    def copy(self) -> None:
        """From a GPU it is only begun, on the current stream."""
        self.target.copy_(self.source, non_blocking=True)


def slices_of(
    sources: Sequence[Tensor], targets: Sequence[Tensor], slice_bytes: int
) -> list[list[Piece]]:
    """All values of ``sources``, in order, ``slice_bytes`` at a time.

    Raises:
        ValueError: a source and its target differ, or one of them is not contiguous.
    """
    slices: list[list[Piece]] = []
    room = 0
    for source, target in zip(sources, targets, strict=True):
        values, place = _flat(source, target)
        start = 0
        while start < values.numel():
            if room < values.itemsize:
                slices.append([])
                room = max(slice_bytes, values.itemsize)
            stop = min(start + room // values.itemsize, values.numel())
            piece = Piece(values[start:stop], place[start:stop])
            slices[-1].append(piece)
            room -= piece.source.nbytes
            start = stop
    return slices


def _flat(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    alike = (source.shape, source.dtype) == (target.shape, target.dtype)
    if not (alike and source.is_contiguous() and target.is_contiguous()):
        raise ValueError(
            f"a source of {tuple(source.shape)} {source.dtype} cannot be copied in pieces into a "
            f"target of {tuple(target.shape)} {target.dtype}; both must be alike and contiguous"
        )
    return source.detach().view(-1), target.view(-1)
