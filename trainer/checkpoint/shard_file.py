"""Runs in the checkpoint worker: writes one rank's shards from host memory and reports on it."""

import gc
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult

from trainer.checkpoint.layout import FileRecord, sync_folder
from trainer.checkpoint.report_area import write_report
from trainer.checkpoint.staging import Slot, attach
from trainer.checkpoint.summed_file import SummedFile, SummingFileSystem
from trainer.parent_death import die_with


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """One rank's part of a save: what to write where, and where its values lie."""

    trainer_pid: int
    memory: str
    reports: str
    slots: tuple[Slot, ...]
    """Of each item of the plan."""

    plan: SavePlan
    folder: Path


@dataclass(frozen=True, slots=True)
class Report:
    results: list[WriteResult]
    files: list[FileRecord]
    failure: str = ""


class LocalShardFile:
    """Takes what ``torch.save`` writes and makes it the file ``path``: whole, or not at all.

    It never raises, since that would kill the worker: the first error ends in the report.
    """

    def __init__(self, path: Path, *, reports: str) -> None:
        self._trainer_pid = os.getpid()  # made in the trainer, and pickled to the worker
        self._path = path
        self._reports = reports
        self._file: SummedFile | None = None
        self._failure = ""

    def write(self, content: memoryview) -> None:
        if self._failure:
            return
        try:
            if self._file is None:
                die_with(self._trainer_pid)
                self._file = SummedFile(self._temporary())
            self._file.write(content)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """``torch.save`` is at its end, or leaves with an exception."""
        if error := sys.exception():
            self._fail(error)
        files: list[FileRecord] = []
        if not self._failure:
            try:
                files = [self._make_durable()]
            except OSError as error:
                self._fail(error)
        report = Report([], files, self._failure)
        with suppress(OSError):  # the trainer is gone: nobody is left to report to
            write_report(self._reports, report)

    def _make_durable(self) -> FileRecord:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary().replace(self._path)
        sync_folder(self._path.parent)
        return self._file.record(self._path.name)

    def _fail(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        # Of the same disk: the first error says more than these.
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        with suppress(OSError):
            self._temporary().unlink(missing_ok=True)

    def _temporary(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")


def warm_up(trainer_pid: int) -> None:
    """The worker's first call: by its end everything is imported and its life is tied to ours.

    NVRx's worker would live on as an orphan, in a save that is stuck.
    """
    die_with(trainer_pid)
    # NVRx runs its worker without the collector, and each save leaves 6 KB of cycles a tensor.
    gc.enable()


def write_shards(order: WriteOrder) -> None:
    """Write the files of ``order`` durably and leave a report; never raises."""
    die_with(order.trainer_pid)
    try:
        report = _write(order, torch.frombuffer(attach(order.memory), dtype=torch.uint8))
    except Exception as error:  # an exception would kill the worker, and NVRx would not notice
        report = Report([], [], failure=f"{type(error).__name__}: {error}")
    with suppress(OSError):  # the trainer is gone: nobody is left to report to
        write_report(order.reports, report)


def _write(order: WriteOrder, memory: Tensor) -> Report:
    if not order.plan.items:
        return Report([], [])
    tensors = {
        item.index: slot.view(memory)
        for item, slot in zip(order.plan.items, order.slots, strict=True)
    }
    writer = FileSystemWriter(order.folder)
    writer.fs = files = SummingFileSystem()
    results = writer.write_data(order.plan, _PlacedPlanner(tensors)).wait()
    sync_folder(order.folder)
    return Report(results, files.files)


class _PlacedPlanner(DefaultSavePlanner):
    """Finds a planned item's value in host memory instead of a state dictionary."""

    def __init__(self, tensors: dict[MetadataIndex, Tensor]) -> None:
        super().__init__()
        self._tensors = tensors

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._tensors[write_item.index]
