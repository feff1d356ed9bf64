"""What both asynchronous modes do alike: stage the values, have the worker write, follow it."""

from collections.abc import Sequence

from torch import Tensor

from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.shard_file import Report, warm_up
from trainer.checkpoint.staging import Staging
from trainer.checkpoint.writer import Progress


class StagedWriter:
    """The part of a ``ShardWriter`` that follows NVRx's worker through one save."""

    def __init__(self, worker: BackgroundWorker) -> None:
        self._worker = worker
        self._worker.start(warm_up)
        self._staging: Staging | None = None
        self._failure = ""

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

    def _stage(self, values: Sequence[Tensor]) -> Staging:
        """The values as they are now, in memory that a worker ready to write can map."""
        self._failure = ""
        if self._staging is None:
            self._staging = Staging(values)
        self._staging.copy_from(values)
        if self._worker.state() is CallState.DEAD:
            self._worker.start(warm_up)
        return self._staging

    def _report(self) -> Report | None:
        report: Report | None = self._staging.report() if self._staging else None
        return report
