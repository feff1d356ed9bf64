"""What both asynchronous modes do alike: stage the values, have the worker write, follow it."""

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.shard_file import Report, warm_up
from trainer.checkpoint.staging import Staging, needed_bytes
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
        self._failure = ""

    def prepare(self, tensors: dict[str, Tensor]) -> None:
        with suppress(OSError):  # each save tries again, and says why it cannot
            self._memory = self._memory_for([local_shard(tensor) for tensor in tensors.values()])
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

    def _stage(self, values: Sequence[Tensor]) -> Staging:
        """The values as they are now, in memory that a worker ready to write can map."""
        self._failure = ""
        if self._staging is None:
            self._memory = self._memory_for(values)
            self._memory.wait(_READY_SECONDS)
            self._staging = Staging(values, self._memory)
        self._staging.copy_from(values)
        if self._worker.state() is CallState.DEAD:
            self._worker.start(warm_up)
        return self._staging

    def _memory_for(self, values: Sequence[Tensor]) -> HostMemory:
        cpu = torch.device("cpu")
        device = next((value.device for value in values if value.device != cpu), cpu)
        return self._worker.memory(needed_bytes(values), device)

    def _report(self) -> Report | None:
        report: Report | None = self._staging.report() if self._staging else None
        return report
