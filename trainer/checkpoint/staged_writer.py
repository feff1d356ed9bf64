"""What both asynchronous modes do alike: stage the values, have the worker write, follow it.

A shard that lies in host memory already is written from there: nothing is staged.
"""

from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.report_area import ReportArea
from trainer.checkpoint.shard_file import Report, warm_up
from trainer.checkpoint.staging import HostShard, Staging, needed_bytes
from trainer.checkpoint.writer import Progress
from trainer.state import local_shard

_READY_SECONDS = 10.0
"""The first save's longest wait for memory; without any, the copy itself would take as long."""


class StagedWriter:
    """The part of a ``ShardWriter`` that follows NVRx's worker through one save."""

    def __init__(self, worker: BackgroundWorker) -> None:
        self._worker = worker
        self._worker.start(warm_up)
        self._memory: HostMemory | None = None
        self._staging: Staging | None = None
        self._reports: ReportArea | None = None
        self._failure = ""

    def prepare(self, tensors: dict[str, Tensor]) -> None:
        with suppress(OSError):  # each save tries again, and says why it cannot
            self._memory = self._memory_for(_local(tensors))
            self._memory.get_ready()

    def progress(self) -> Progress:
        if self._failure:
            return Progress.FAILED
        match self._worker.state():
            case CallState.RUNNING:
                return Progress.WRITING
            case CallState.DEAD:
                report = self._report()
                self._failure = (report and report.failure) or "the checkpoint worker died"
                self._worker.kill()
                return Progress.FAILED
            case CallState.IDLE:
                report = self._report()
                self._failure = "the worker left no report" if report is None else report.failure
                return Progress.FAILED if self._failure else Progress.WRITTEN

    def failure(self) -> str:
        return self._failure

    def abandon(self) -> None:
        self._failure = ""
        if self._worker.state() is CallState.RUNNING:
            self._worker.kill()

    def close(self) -> None:
        if self._memory is not None:
            self._memory.stop()

    def _begin(self, tensors: dict[str, Tensor], held: HostShard | None) -> tuple[HostShard, str]:
        """The shard to write, and where to report; the worker is ready to map both."""
        self._failure = ""
        if self._reports is None:
            self._reports = ReportArea(len(tensors))
        self._reports.clear()
        shard = held or self._staged(_local(tensors))
        if self._worker.state() is CallState.DEAD:
            self._worker.start(warm_up)
        return shard, self._reports.path

    def _staged(self, tensors: dict[str, Tensor]) -> HostShard:
        """The values as they are now."""
        if self._staging is None:
            self._memory = self._memory_for(tensors)
            self._memory.wait(_READY_SECONDS)
            self._staging = Staging(tensors, self._memory)
        self._staging.copy_from(tensors)
        return self._staging.shard

    def _memory_for(self, tensors: Mapping[str, Tensor]) -> HostMemory:
        values, cpu = list(tensors.values()), torch.device("cpu")
        device = next((value.device for value in values if value.device != cpu), cpu)
        return self._worker.memory(needed_bytes(values), device)

    def _report(self) -> Report | None:
        report: Report | None = self._reports.read() if self._reports else None
        return report


def _local(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: local_shard(tensor) for name, tensor in tensors.items()}
