"""The tensors of the attempt before, kept within the process for the attempt after it.

Plain local tensors alone: a ``DTensor`` keeps its mesh, the mesh its group, and the
group's open sockets would keep the other ranks waiting for this one.

Not covered: whether the values are right, which is for whoever names their step to know.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.snapshots.offers import Key
from trainer.state import local_shard


@dataclass(frozen=True, slots=True)
class Kept:
    """A shard of a state, as the attempt that made it left it."""

    coordinate: int
    attempt: int
    step: int
    identity: bytes
    tensors: tuple[Tensor, ...]
    """On the device where they were trained, in the order of the state."""

    @property
    def key(self) -> Key:
        return self.attempt, self.step


class Live:
    """One shard at most; outlives attempts."""

    def __init__(self) -> None:
        self.kept: Kept | None = None

    def keep(
        self,
        tensors: Iterable[Tensor],
        *,
        coordinate: int,
        attempt: int,
        step: int | None,
        identity: bytes,
    ) -> None:
        """Keep the tensors of an attempt that is over, without copying them.

        ``step`` is the step that they hold, or None if they hold none: an update, or a restore,
        was under way, or there is doubt about them. Then what is kept already stays: an attempt
        that failed before it had taken it over leaves it to the next.
        """
        if step is None:
            return
        with torch.no_grad():  # else the plain tensors would remember what they were made from
            plain = tuple(local_shard(tensor).detach() for tensor in tensors)
        self.kept = Kept(coordinate, attempt, step, identity, plain)

    def copy_to(self, tensors: Sequence[Tensor]) -> None:
        """Fill local ``tensors``, of the same shapes and order, on any device.

        Raises:
            ValueError: nothing is kept, or they are of another shape or type.
        """
        if self.kept is None:
            raise ValueError("no tensors of an attempt before are kept")
        if [_form(tensor) for tensor in tensors] != [_form(own) for own in self.kept.tensors]:
            raise ValueError("the tensors kept are of another shape or type than those to fill")
        for own, tensor in zip(self.kept.tensors, tensors, strict=True):
            tensor.detach().copy_(own)

    def let_go_if_tight(self, device: torch.device) -> None:
        """Free what is kept where a second state beside it would not fit on the GPU."""
        if self.kept is None or device.type != "cuda":
            return
        free_bytes, _ = torch.cuda.mem_get_info(device)
        unused_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if not has_room(
            sum(tensor.nbytes for tensor in self.kept.tensors), free_bytes + unused_bytes
        ):
            self.let_go()

    def let_go(self) -> None:
        """Free what is kept: it holds as much memory as the state of the new attempt."""
        self.kept = None


def has_room(state_bytes: int, free_bytes: int) -> bool:
    """Whether another state of this size fits, with a tenth to spare for how memory is cut up."""
    return state_bytes * 1.1 <= free_bytes


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.dtype
