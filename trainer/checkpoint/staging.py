"""Host memory in which a rank's shard waits to be written, shared with the writer by name.

The worker gets a path, offsets and types, never tensors: pickling a shared tensor
moves its storage, and a save that reads live parameters holds a later step's
values (facts of NVRx before 0.7, seen in its saved files).
"""

import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint.host_memory import NAME, HostMemory

_ALIGNMENT = 64
_OF_PROCESSES = "/proc/"


@dataclass(frozen=True, slots=True)
class Slot:
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def view(self, memory: Tensor) -> Tensor:
        """This slot of ``memory`` (uint8) as a tensor of its own shape and type."""
        count = self.dtype.itemsize * math.prod(self.shape)
        return memory[self.offset : self.offset + count].view(self.dtype).view(self.shape)

    def alone(self, mapping: mmap.mmap) -> Tensor:
        """The same as a tensor whose storage is this slot and no more."""
        count = math.prod(self.shape)
        if count == 0:  # no buffer may be of no length
            return torch.empty(self.shape, dtype=self.dtype)
        values = torch.frombuffer(mapping, dtype=self.dtype, count=count, offset=self.offset)
        return values.view(self.shape)


@dataclass(frozen=True, slots=True)
class HostShard:
    """One rank's part of a state in host memory; nobody writes into it while it is saved."""

    path: str
    """What a process of the same pod maps it by."""

    slots: Mapping[str, Slot]
    """By the tensor's name."""


@dataclass(frozen=True, slots=True)
class ArrivingState:
    """A shard; pickled here, it is a dictionary of tensors by name where it arrives.

    Each has a storage of its own there, as ``torch.save`` writes whole storages.
    """

    shard: HostShard

    def __reduce__(self) -> tuple[Any, ...]:
        return _tensors_of, (self.shard,)


class Staging:
    """One slot for each tensor, in memory that is this process's own."""

    def __init__(self, tensors: Mapping[str, Tensor], memory: HostMemory) -> None:
        slots, needed = places(list(tensors.values()))
        assert needed <= memory.size_bytes
        self.shard = HostShard(memory.path, dict(zip(tensors, slots, strict=True)))
        self._memory = memory

    def copy_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the tensors' values as they are now."""
        for name, slot in self.shard.slots.items():
            slot.view(self._memory.values).copy_(tensors[name].detach())


def needed_bytes(tensors: Sequence[Tensor]) -> int:
    """What a ``Staging`` of ``tensors``, or of some of them, takes."""
    return max(places(tensors)[1], _ALIGNMENT)  # no mapping may be of no length


def attach(path: str) -> mmap.mmap:
    """Map, in the writer, the memory that another process filled.

    Raises:
        OSError: that process, or the attempt in it, is gone and the memory with it.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        # The descriptor's number may have gone to another file of that process since.
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if path.startswith(_OF_PROCESSES) and NAME not in name:
            raise OSError(f"{path} is not staged memory any more")
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)


def _tensors_of(shard: HostShard) -> dict[str, Tensor]:
    mapping = attach(shard.path)
    return {name: slot.alone(mapping) for name, slot in shard.slots.items()}


def places(tensors: Sequence[Tensor], *, start: int = 0) -> tuple[tuple[Slot, ...], int]:
    """Where each tensor lies in memory from ``start`` on, and where the last one ends."""
    offset = start
    slots = []
    for tensor in tensors:
        slots.append(Slot(offset, tuple(tensor.shape), tensor.dtype))
        offset = _aligned(offset + tensor.numel() * tensor.element_size())
    return tuple(slots), offset


def _aligned(offset: int) -> int:
    return (offset + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
