"""One snapshot in a file of shared memory: a page that says what it is of, then the tensors.

The file outlives the process that wrote it, and any process of the node may map it. Until
``finish`` has returned it is nobody's snapshot; how the bytes get in, and when, is the
caller's affair.

Not covered: two processes that fill one buffer. Its name carries the coordinate, which one
living rank has.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from trainer.checkpoint import staging
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import Slot
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, SnapshotKey, pack, unpack


class SnapshotBuffer:
    """Room for the local tensors of one rank, in the order in which they are given."""

    def __init__(self, memory: HostMemory, slots: tuple[Slot, ...]) -> None:
        self.path = Path(memory.path)
        self.values = memory.values
        """All bytes of the file."""

        self.slots = slots
        self.tensors = tuple(slot.view(memory.values) for slot in slots)
        """Views of the payload; what is copied into them between ``begin`` and ``finish``."""

        self._memory = memory
        # As found, so that a reader of what was there before sees it change.
        found = self.header()
        self._sequence = found.sequence if found else 0
        self._filled_with: SnapshotKey | None = None

    @classmethod
    def open(cls, folder: Path, name: str, tensors: Sequence[Tensor], device: torch.device) -> Self:
        """The buffer of that name, as an earlier process left it or new.

        A file that is there and was made for tensors of other sizes is replaced.

        Args:
            tensors: Local ones (no DTensor), whose sizes and types count here.
            device: Where they are copied from; for a GPU's the file is pinned.

        Raises:
            OSError: the file cannot be made or mapped.
        """
        slots, size_bytes = places(tensors)
        return cls(HostMemory(size_bytes, device, file=folder / name), slots)

    @property
    def is_ready(self) -> bool:
        """Whether it may be filled: before, a full file system would kill whoever writes, and a
        copy from a GPU would wait for the host."""
        return self._memory.is_ready

    @property
    def failure(self) -> str:
        """Why it will not become ready; empty while nothing speaks against it."""
        return self._memory.failure

    def get_ready(self) -> None:
        """Begin to reserve, touch and pin the file, or go on with that; returns at once."""
        self._memory.get_ready()

    def wait(self, seconds: float) -> None:
        """Return once it is as ready as it gets, or after so many seconds."""
        self._memory.wait(seconds)

    def stop(self) -> None:
        """Leave it as ready as it is."""
        self._memory.stop()

    def remove(self) -> None:
        """Give the memory back, once nobody maps it any more; others find no such file."""
        self.stop()
        self.path.unlink(missing_ok=True)

    def header(self) -> Header | None:
        """What the file says now that it holds; None where that is nothing, or damaged."""
        return unpack(self._memory.mapping[:HEADER_BYTES])

    def begin(self, key: SnapshotKey) -> None:
        """From here on, and if this process dies, the file holds no snapshot."""
        assert self.is_ready, f"{self.path} is not ready"
        self._sequence += 2 if self._sequence % 2 else 1
        self._filled_with = key
        self._write(key, None)

    def finish(self, probe_loss: float | None) -> None:
        """Every byte is there; ``probe_loss`` is that of the step after, where it is known."""
        key, self._filled_with = self._filled_with, None
        assert key is not None, f"{self.path} was not begun"
        self._sequence += 1
        self._write(key, probe_loss)

    def copy_to(self, tensors: Sequence[Tensor]) -> bool:
        """Copy the snapshot into ``tensors``, which are as those that it was opened for.

        Returns:
            Whether it was whole and nobody changed it meanwhile; if not, they hold anything.
        """
        before = self.header()
        if before is None or not before.is_whole:
            return False
        for source, target in zip(self.tensors, tensors, strict=True):
            assert (source.shape, source.dtype) == (target.shape, target.dtype)
            target.detach().copy_(source)
        return self.header() == before

    def _write(self, key: SnapshotKey, probe_loss: float | None) -> None:
        header = Header(
            sequence=self._sequence,
            key=key,
            payload_bytes=len(self.values) - PAGE_BYTES,
            probe_loss=probe_loss,
        )
        self._memory.mapping[:HEADER_BYTES] = pack(header)


def needed_bytes(tensors: Sequence[Tensor]) -> int:
    """The size of a buffer for ``tensors``."""
    return places(tensors)[1]


def found_in(folder: Path) -> list[tuple[Path, Header]]:
    """The snapshots in ``folder`` that are whole, whoever wrote them, by name."""
    found = []
    for path in sorted(folder.iterdir()):
        try:
            with path.open("rb") as file:
                header = unpack(file.read(HEADER_BYTES))
            size_bytes = path.stat().st_size
        except OSError:
            continue  # it is gone, or no file
        if header and header.is_whole and size_bytes == PAGE_BYTES + header.payload_bytes:
            found.append((path, header))
    return found


def places(tensors: Sequence[Tensor]) -> tuple[tuple[Slot, ...], int]:
    """Where each tensor lies behind the header's page, and where the last one ends."""
    return staging.places(tensors, start=PAGE_BYTES)
