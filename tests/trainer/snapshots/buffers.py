"""Snapshots in the folders of nodes, and a process that writes into them at the wrong moment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from trainer.distributed import Job
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.header import Header, SnapshotKey, pack
from trainer.snapshots.sources import Buffer, MappedFile, NodeFiles
from trainer.state import TrainState, local_shard

IDENTITY = b"this run, so big"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A rank's shard of a state, in the folder of a node."""

    coordinate: int
    step: int
    folder: Path
    attempt: int = 1
    prefix: str = "own-"
    identity: bytes = IDENTITY
    world_size: int | None = None
    probe_loss: float | None = None
    lacks_the_last: bool = False
    """Has one tensor less than the state."""

    @property
    def name(self) -> str:
        return f"{self.prefix}{self.coordinate}-{self.attempt}-{self.step}"

    def write(self, job: Job, state: TrainState) -> None:
        tensors = [local_shard(tensor).detach() for tensor in state.tensors().values()]
        if self.lacks_the_last:
            tensors.pop()
        buffer = SnapshotBuffer.open(self.folder, self.name, tensors, torch.device("cpu"))
        buffer.get_ready()
        buffer.wait(30)
        world_size = self.world_size or job.world_size
        buffer.begin(
            SnapshotKey(self.coordinate, self.attempt, self.step, world_size, self.identity)
        )
        for slot, tensor in zip(buffer.tensors, tensors, strict=True):
            slot.copy_(tensor)
        buffer.finish(self.probe_loss)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """Another process fills the buffers of ``step`` once more, once they are offered, or read."""

    step: int | None
    """None: those of any."""

    when_read: bool

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        found = NodeFiles().found_in(folder)
        if not self.when_read:
            for path, header in found:
                self.overwrite(path, header)
        return found

    def attach(self, path: Path) -> Buffer:
        return _OverwrittenBuffer(path, self) if self.when_read else MappedFile(path)

    def overwrite(self, path: Path, header: Header | None) -> None:
        if header is not None and self.step in (None, header.key.step):
            with path.open("r+b") as file:
                file.write(pack(replace(header, sequence=header.sequence + 2)))


class _OverwrittenBuffer:
    def __init__(self, path: Path, by: Overwritten) -> None:
        self._path, self._by, self._file = path, by, MappedFile(path)

    @property
    def values(self) -> Tensor:
        self._by.overwrite(self._path, self.header())
        return self._file.values

    def header(self) -> Header | None:
        return self._file.header()


@dataclass(frozen=True, slots=True)
class Vanished:
    """The buffers of ``step`` are removed once they were offered."""

    step: int

    def found_in(self, folder: Path) -> Sequence[tuple[Path, Header]]:
        found = NodeFiles().found_in(folder)
        for path, header in found:
            if header.key.step == self.step:
                path.unlink()
        return found

    def attach(self, path: Path) -> Buffer:
        return MappedFile(path)
