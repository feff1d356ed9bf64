"""Blocking saves: training waits until every rank's shards are on storage."""

import os
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException

from trainer.checkpoint.layout import FileRecord, ShardFormat
from trainer.checkpoint.staging import HostShard
from trainer.checkpoint.summed_file import SummingFileSystem
from trainer.checkpoint.writer import Progress


class SyncWriter:
    """A ``ShardWriter`` over ``torch.distributed.checkpoint.save``."""

    format = ShardFormat.DCP

    def __init__(self) -> None:
        self._files: list[FileRecord] = []
        self._failure = ""

    def prepare(self, tensors: dict[str, Tensor]) -> None:
        """Nothing: the values are written from where they are."""

    def begin(
        self, tensors: dict[str, Tensor], folder: Path, held: HostShard | None = None
    ) -> None:
        assert held is None, "who waits anyway needs no copy"
        self._failure = ""
        writer = FileSystemWriter(folder)
        writer.fs = files = _InPlace()
        try:
            dcp.save(tensors, storage_writer=writer)
        except CheckpointException as error:  # raised on every rank, whichever failed
            self._failure = "; ".join(
                f"rank {rank}: {reason[0]}" for rank, reason in error.failures.items()
            )
        self._files = files.files

    def progress(self) -> Progress:
        return Progress.FAILED if self._failure else Progress.WRITTEN

    def failure(self) -> str:
        return self._failure

    def finish(self) -> list[FileRecord]:
        return self._files

    def abandon(self) -> None:
        self._failure = ""

    def close(self) -> None:
        """Nothing is left: a save is over when ``begin`` returns."""


class _InPlace(SummingFileSystem):
    """Makes no folder: one that vanished since it was made may be of a lost file system."""

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        pass
