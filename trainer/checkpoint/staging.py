"""Host memory in which a save waits to be written, shared with the writer by name.

The worker gets a path, offsets and types, never tensors: pickling a shared tensor
moves its storage, and a save that reads live parameters holds a later step's
values (facts of NVRx before 0.7, seen in its saved files).
"""

import math
import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint.host_memory import NAME, HostMemory

_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")


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
class StagedState:
    """Tensors by name and place; pickled here, it is a dictionary of them where it arrives.

    Each has a storage of its own there, as ``torch.save`` writes whole storages.
    """

    path: str
    slots: tuple[tuple[str, Slot], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _tensors_at, (self.path, self.slots)


class Staging:
    """A report area for the writer's answer, then one slot for each tensor."""

    def __init__(self, tensors: Sequence[Tensor], memory: HostMemory) -> None:
        self.slots, needed = _places(tensors)
        assert needed <= memory.size_bytes
        self.path = memory.path
        self._memory = memory

    def copy_from(self, tensors: Sequence[Tensor]) -> None:
        """Take the tensors' values as they are now; clears the writer's last report."""
        self._memory.mapping[: _LENGTH.size] = bytes(_LENGTH.size)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            slot.view(self._memory.values).copy_(tensor.detach())

    def report(self) -> Any:
        """What the writer reported, or None if it has not."""
        return _read_report(self._memory.mapping)


def needed_bytes(tensors: Sequence[Tensor]) -> int:
    """What a ``Staging`` of ``tensors``, or of some of them, takes."""
    return _places(tensors)[1]


def attach(path: str) -> mmap.mmap:
    """Map, in the writer, the memory that another process staged.

    Raises:
        OSError: that process, or the attempt in it, is gone and the memory with it.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        # The descriptor's number may have gone to another file of that process since.
        if NAME not in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            raise OSError(f"{path} is not staged memory any more")
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)


def _tensors_at(path: str, slots: tuple[tuple[str, Slot], ...]) -> dict[str, Tensor]:
    mapping = attach(path)
    return {name: slot.alone(mapping) for name, slot in slots}


def write_report(mapping: mmap.mmap, report: Any) -> None:
    """Leave ``report`` for the trainer; the length is written last, so it is whole or absent."""
    content = pickle.dumps(report)
    mapping[_LENGTH.size : _LENGTH.size + len(content)] = content
    mapping[: _LENGTH.size] = _LENGTH.pack(len(content))


def _read_report(mapping: mmap.mmap) -> Any:
    (length,) = _LENGTH.unpack(mapping[: _LENGTH.size])
    if not length:
        return None
    # Written by our own child into memory that only the two of us map.
    return pickle.loads(mapping[_LENGTH.size : _LENGTH.size + length])


def _places(tensors: Sequence[Tensor]) -> tuple[tuple[Slot, ...], int]:
    """Where each tensor lies behind the report area, and where the last one ends."""
    offset = _aligned((1 << 20) + 512 * len(tensors))
    slots = []
    for tensor in tensors:
        slots.append(Slot(offset, tuple(tensor.shape), tensor.dtype))
        offset = _aligned(offset + tensor.numel() * tensor.element_size())
    return tuple(slots), offset


def _aligned(offset: int) -> int:
    return (offset + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
