"""Blocking saves: training waits until every rank's shards are on storage."""

import logging
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from trainer.checkpoint.layout import FileRecord, ShardFormat, record_file
from trainer.checkpoint.writer import Progress, own_files

logger = logging.getLogger(__name__)


class SyncWriter:
    """A ``ShardWriter`` over ``torch.distributed.checkpoint.save``."""

    format = ShardFormat.DCP

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._folder = Path()
        self._failure = ""

    def prepare(self, tensors: dict[str, Tensor]) -> None:
        """Nothing: the values are written from where they are."""

    def begin(self, tensors: dict[str, Tensor], folder: Path) -> None:
        self._folder = folder
        self._failure = ""
        try:
            dcp.save(tensors, checkpoint_id=folder)
        except CheckpointException as error:  # raised on every rank, whichever failed
            self._failure = "; ".join(
                f"rank {rank}: {reason[0]}" for rank, reason in error.failures.items()
            )

    def progress(self) -> Progress:
        return Progress.FAILED if self._failure else Progress.WRITTEN

    def failure(self) -> str:
        return self._failure

    def finish(self) -> list[FileRecord]:
        return [record_file(path) for path in own_files(self._folder, self._rank)]

    def abandon(self) -> None:
        self._failure = ""

    def close(self) -> None:
        """Nothing is left: a save is over when ``begin`` returns."""
