"""Asynchronous saves of each rank's own shards in one file, by NVRx's ``TorchAsyncCheckpoint``.

The cheapest save there is: no plan, no metadata, nothing gathered. The price is
that only the same number of ranks can read it. ``TorchAsyncCheckpoint`` is given
names of host memory instead of tensors, and instead of a path something that
writes to a temporary name, counts a checksum, syncs and renames.
"""

from pathlib import Path

from torch import Tensor

from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.layout import FileRecord, ShardFormat
from trainer.checkpoint.shard_file import LocalShardFile
from trainer.checkpoint.staged_writer import StagedWriter
from trainer.checkpoint.staging import ArrivingState, HostShard


class LocalWriter(StagedWriter):
    """A ``ShardWriter`` whose file is a dictionary of this rank's shards by name."""

    format = ShardFormat.LOCAL_SHARDS

    def __init__(self, worker: BackgroundWorker, *, rank: int) -> None:
        super().__init__(worker)
        self._rank = rank

    def begin(
        self, tensors: dict[str, Tensor], folder: Path, held: HostShard | None = None
    ) -> None:
        shard, reports = self._begin(tensors, held)
        target = LocalShardFile(folder / shard_name(self._rank), reports=reports)
        self._worker.save(ArrivingState(shard), target)

    def finish(self) -> list[FileRecord]:
        report = self._report()
        assert report is not None
        return report.files


def shard_name(rank: int) -> str:
    return f"rank-{rank}.pt"
