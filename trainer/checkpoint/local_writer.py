"""Asynchronous saves of each rank's own shards in one file, by NVRx's ``TorchAsyncCheckpoint``.

The cheapest save there is: no plan, no metadata, nothing gathered. The price is
that only the same number of ranks can read it. ``TorchAsyncCheckpoint`` is given
names of staged memory instead of tensors, and instead of a path something that
writes to a temporary name, counts a checksum, syncs and renames.
"""

from pathlib import Path

from torch import Tensor

from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.layout import FileRecord, ShardFormat
from trainer.checkpoint.shard_file import LocalShardFile
from trainer.checkpoint.staged_writer import StagedWriter
from trainer.checkpoint.staging import StagedState
from trainer.state import local_shard


class LocalWriter(StagedWriter):
    """A ``ShardWriter`` whose file is a dictionary of this rank's shards by name."""

    format = ShardFormat.LOCAL_SHARDS

    def __init__(self, worker: BackgroundWorker, *, rank: int) -> None:
        super().__init__(worker)
        self._rank = rank

    def begin(self, tensors: dict[str, Tensor], folder: Path) -> None:
        staging = self._stage([local_shard(tensor) for tensor in tensors.values()])
        state = StagedState(staging.path, tuple(zip(tensors, staging.slots, strict=True)))
        target = LocalShardFile(folder / shard_name(self._rank), memory=staging.path)
        self._worker.save(state, target)

    def finish(self) -> list[FileRecord]:
        report = self._report()
        assert report is not None
        return report.files


def shard_name(rank: int) -> str:
    return f"rank-{rank}.pt"
