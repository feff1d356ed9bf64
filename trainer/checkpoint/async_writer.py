"""Asynchronous saves: NVRx's worker writes the state from host memory while training goes on."""

import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.layout import FileRecord, ShardFormat, record_file
from trainer.checkpoint.shard_file import WriteOrder, write_shards
from trainer.checkpoint.staged_writer import StagedWriter
from trainer.checkpoint.staging import HostShard, Slot
from trainer.checkpoint.writer import METADATA


class AsyncWriter(StagedWriter):
    """A ``ShardWriter`` whose files are written by NVRx's worker process.

    Who writes what is planned once, at the first save: names, shapes and types do
    not change during an attempt.
    """

    format = ShardFormat.DCP

    def __init__(self, worker: BackgroundWorker, *, rank: int, world_size: int) -> None:
        super().__init__(worker)
        self._rank = rank
        self._world_size = world_size
        self._plan: SavePlan | None = None
        self._metadata: Metadata | None = None
        self._folder = Path()

    def begin(
        self, tensors: dict[str, Tensor], folder: Path, held: HostShard | None = None
    ) -> None:
        self._folder = folder
        if self._plan is None:
            planner = DefaultSavePlanner()
            planner.set_up_planner(tensors, is_coordinator=self._rank == 0)
            self._plan, self._metadata = self._agree_on_plan(planner, folder)
        shard, reports = self._begin(tensors, held)
        order = WriteOrder(
            trainer_pid=os.getpid(),
            memory=shard.path,
            reports=reports,
            slots=tuple(_slot_of(item, shard) for item in self._plan.items),
            plan=self._plan,
            folder=folder,
        )
        self._worker.call(write_shards, order)

    def finish(self) -> list[FileRecord]:
        report = self._report()
        assert report is not None
        gathered: list[Any] | None = [None] * self._world_size if self._rank == 0 else None
        dist.gather_object(report.results, gathered, dst=0)
        if gathered is None or self._metadata is None:
            return report.files
        FileSystemWriter(self._folder).finish(self._metadata, gathered)
        return [*report.files, record_file(self._folder / METADATA)]

    def _agree_on_plan(
        self, planner: DefaultSavePlanner, folder: Path
    ) -> tuple[SavePlan, Metadata | None]:
        """Rank 0 merges all ranks' plans and names the files; each gets its own part back."""
        plans: list[Any] | None = [None] * self._world_size if self._rank == 0 else None
        dist.gather_object(planner.create_local_plan(), plans, dst=0)
        mine: list[Any] = [None]
        metadata = None
        merged: list[Any] | None = None
        if plans is not None:
            merged, metadata = planner.create_global_plan(plans)
            merged = FileSystemWriter(folder).prepare_global_plan(merged)
        dist.scatter_object_list(mine, merged, src=0)
        return planner.finish_plan(mine[0]), metadata


def _slot_of(item: WriteItem, shard: HostShard) -> Slot:
    """Where the value of a planned item lies: all of what this rank holds of one tensor."""
    slot = shard.slots[item.index.fqn]
    # Other objects would be pickled into the checkpoint; the state has none.
    assert item.tensor_data is not None
    assert slot.shape == tuple(item.tensor_data.chunk.sizes)
    return slot
