"""Snapshots in files, as a trainer leaves them in its node's folder."""

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from trainer.checkpoint.staging import Slot
from trainer.distributed import Job
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, SnapshotKey, pack, unpack
from trainer.state import TrainState, local_shard

IDENTITY = b"this run, so big"


class FileBuffer:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._mapping = mmap.mmap(file.fileno(), 0)
        self._values = torch.frombuffer(self._mapping, dtype=torch.uint8)

    @property
    def values(self) -> Tensor:
        return self._values

    def header(self) -> Header | None:
        return unpack(self._mapping[:HEADER_BYTES])


class PlainFiles:
    """Buffers as they lie there."""

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        headers = ((path, header_of(path)) for path in folder.iterdir())
        return [(path, header) for path, header in headers if header and header.is_whole]

    def attach(self, path: Path) -> FileBuffer:
        return FileBuffer(path)

    def slots_of(self, tensors: Sequence[Tensor]) -> Sequence[Slot]:
        offset, slots = PAGE_BYTES, []
        for tensor in tensors:
            slots.append(Slot(offset, tuple(tensor.shape), tensor.dtype))
            offset += -(-tensor.numel() * tensor.element_size() // 64) * 64
        return slots


@dataclass(frozen=True, slots=True)
class OverwrittenFiles(PlainFiles):
    """Another process fills the buffers of one step anew, at a moment of the restore."""

    step: int
    when: str
    """"offered" or "read"."""

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        found = PlainFiles.found_in(self, folder)
        if self.when == "offered":
            for path, header in found:
                self.overwrite(path, header)
        return found

    def attach(self, path: Path) -> FileBuffer:
        return _Overwritten(path, self) if self.when == "read" else FileBuffer(path)

    def overwrite(self, path: Path, header: Header | None) -> None:
        if header is not None and header.key.step == self.step:
            write_header(path, replace(header, sequence=header.sequence + 2))


class _Overwritten(FileBuffer):
    def __init__(self, path: Path, files: OverwrittenFiles) -> None:
        super().__init__(path)
        self._path, self._files = path, files

    @property
    def values(self) -> Tensor:
        header = self.header()
        if header is not None and header.sequence == 2:
            self._files.overwrite(self._path, header)
        return super().values


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A shard of the state that ``sharded_state`` makes of the seed ``step``."""

    coordinate: int
    step: int
    folder: Path
    attempt: int = 1
    prefix: str = "own-"
    identity: bytes = IDENTITY
    world_size: int | None = None
    probe_loss: float | None = None
    lacks_bytes: int = 0
    sequence: int = 2

    @property
    def path(self) -> Path:
        return self.folder / f"{self.prefix}{self.coordinate}-{self.attempt}-{self.step}"

    def write(self, job: Job, state: TrainState) -> None:
        files = PlainFiles()
        tensors = [local_shard(tensor).detach() for tensor in state.tensors().values()]
        slots = files.slots_of(tensors)
        end = slots[-1].offset + slots[-1].dtype.itemsize * math.prod(slots[-1].shape)
        self.folder.mkdir(exist_ok=True)
        self.path.write_bytes(bytes(end))
        values = FileBuffer(self.path).values
        for slot, tensor in zip(slots, tensors, strict=True):
            slot.view(values).copy_(tensor)
        key = SnapshotKey(
            self.coordinate,
            self.attempt,
            self.step,
            self.world_size or job.world_size,
            self.identity,
        )
        payload = end - PAGE_BYTES - self.lacks_bytes
        write_header(self.path, Header(self.sequence, key, payload, self.probe_loss))


def header_of(path: Path) -> Header | None:
    with path.open("rb") as file:
        return unpack(file.read(HEADER_BYTES))


def write_header(path: Path, header: Header) -> None:
    with path.open("r+b") as file:
        file.write(pack(header))
