"""The ways to save that ``bench_saves`` compares, each used as its own documentation says.

Ours go through ``Checkpointer``, so their figures hold the commit, its checksums and
retention; the others only write files. Those of NVRx are in ``bench_nvrx``.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol, cast

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from trainer.checkpoint import layout
from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.modes import writer_for
from trainer.distributed import Job, Votes
from trainer.events import EventLog
from trainer.settings import CheckpointMode, TrainerSettings
from trainer.state import TrainState


class Contender(Protocol):
    """One way to save. Every rank calls every method, at the same point of its loop."""

    def begin(self, step: int) -> None:
        """Begin to save; what the loop waits for before its next forward pass."""

    def before_update(self) -> None:
        """Return once the optimizer may change the tensors of the save begun."""

    def is_done(self) -> bool:
        """Whether this way calls its save finished; raises if it failed."""

    def folder(self, step: int) -> Path: ...

    def discard(self, step: int) -> None:
        """Delete an earlier save, where this way has no retention of its own. Not timed."""


class Ours:
    """One of the modes of this project's ``Checkpointer``."""

    def __init__(self, settings: TrainerSettings, job: Job, state: TrainState) -> None:
        self._events = EventLog(settings.run_directory, rank=job.rank)
        self._root = settings.run_directory / "checkpoints"
        self._job = job
        self._step = 0
        self._checkpointer = Checkpointer(
            settings,
            job=job,
            state=state,
            writer=writer_for(settings, job, BackgroundWorker()),
            events=self._events,
            report_progress=lambda: None,
        )
        self._checkpointer.prepare()

    def begin(self, step: int) -> None:
        self._step = self._events.step = step
        self._checkpointer.save(step)

    def before_update(self) -> None:
        """Its copy is complete when ``save`` returns."""

    def is_done(self) -> bool:
        agreed: Votes = self._job.agree(self._checkpointer.votes())
        self._checkpointer.advance(agreed)
        if self._checkpointer.committed_step == self._step:
            return True
        if agreed.failed or not agreed.writing:
            raise OSError(f"the save of step {self._step} was dropped: see the log")
        return False

    def folder(self, step: int) -> Path:
        return self._root / layout.folder_name(step, self._events.attempt)

    def discard(self, step: int) -> None:
        """Retention does it, at the commit of the next."""


class Bare:
    """What has neither commit nor retention: a folder for each step."""

    def __init__(self, root: Path, job: Job, state: TrainState) -> None:
        self._root, self._job, self._state = root, job, state
        self._on_gpu = job.device.type == "cuda"

    def before_update(self) -> None: ...

    def folder(self, step: int) -> Path:
        return self._root / f"step-{step}"

    def discard(self, step: int) -> None:
        if self._job.rank == 0:
            shutil.rmtree(self.folder(step), ignore_errors=True)


class TorchSave(Bare):
    """``dcp.save``: blocks until every rank's files are written and fsynced."""

    def begin(self, step: int) -> None:
        dcp.save(self._state.tensors(), checkpoint_id=self.folder(step))

    def is_done(self) -> bool:
        return True


class TorchAsyncSave(Bare):
    """``dcp.async_save`` in a process of its own, staged through pinned memory in a thread."""

    def __init__(self, root: Path, job: Job, state: TrainState) -> None:
        super().__init__(root, job, state)
        pinned = self._on_gpu  # without a GPU torch refuses to
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=pinned,
                use_shared_memory=True,
                use_async_staging=True,
                use_non_blocking_copy=pinned,
            )
        )
        # Shim: torch 2.11 closes it after its first use, so the second save fails with
        # KeyError: <class 'type'> (pytorch/pytorch#183413). 2.13 does not.
        cast(Any, self._stager._state_dict_stager).close = lambda: None
        # Its thread's collectives would mix with those of the steps.
        self._group = dist.new_group(backend="gloo")
        self._response: Any = None

    def begin(self, step: int) -> None:
        self._response = dcp.async_save(
            self._state.tensors(),
            checkpoint_id=self.folder(step),
            process_group=self._group,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=self._stager,
        )

    def before_update(self) -> None:
        self._response.staging_completion.result()

    def is_done(self) -> bool:
        if not self._response.upload_completion.done():
            return False
        self._response.upload_completion.result()
        return True


def our_mode(name: str, settings: TrainerSettings, job: Job, state: TrainState) -> Contender:
    """The contender that saves as ``checkpoint.mode`` ``name`` does.

    Raises:
        ValueError: this version has no such mode.
    """
    known = [mode.value for mode in CheckpointMode]
    if name not in known:
        raise ValueError(f"checkpoint.mode {name!r} does not exist here; there are {known}")
    values = json.loads(settings.model_dump_json())
    values["checkpoint"] |= {"mode": name, "keep_latest": 1}
    return Ours(TrainerSettings.model_validate(values), job, state)
