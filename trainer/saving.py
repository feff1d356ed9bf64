"""When a run's state becomes durable: after the steps at which that is due, and at the end.

A save that does not block is written from a snapshot in memory, where there are any: the state
that is due is copied beside the next step, as every snapshot is, and its save begins when all
ranks have it. So it costs training no copy of its own. Where there will be no next step, the
snapshot is taken while training waits, and where there are no snapshots, a copy is staged.

Not covered: a save that was due and not begun when its attempt failed; the next one is.
"""

import time
from collections.abc import Callable

from trainer.checkpoint.checkpointer import Checkpointer
from trainer.distributed import Job, Votes
from trainer.errors import LastSaveFailed
from trainer.process import Process
from trainer.settings import CheckpointMode


class Saving:
    """The saves of one attempt. Every rank calls every method, at the same point."""

    def __init__(
        self,
        process: Process,
        *,
        job: Job,
        checkpointer: Checkpointer,
        report_progress: Callable[[float | None], None],
    ) -> None:
        """``report_progress`` takes the seconds within which there will be more, or None."""
        self._process, self._settings = process, process.settings
        self._mode = process.settings.checkpoint.mode
        self._job = job
        self._snapshots = process.snapshots
        self._checkpointer = checkpointer
        self._report_progress = report_progress
        self._wanted: int | None = None
        """The step whose state is to be saved once it was copied beside the next one."""

    @property
    def patience(self) -> float:
        """How long, in seconds, a save may be silent: one that blocks is silent to its end."""
        if self._mode is CheckpointMode.SYNC:
            return self._process.timeouts.barrier_seconds
        return self._settings.timeouts.hang_seconds

    def get_ready(self) -> None:
        """Once it is known whether there will be snapshots; returns at once."""
        if not self._snapshots.have_buffers:
            self._checkpointer.prepare()

    def look_after(self, step: int, agreed: Votes) -> float:
        """Commit what has become durable and begin what is due; the seconds that it took."""
        wanted, self._wanted = self._wanted, None
        if wanted is None and not self._checkpointer.acts_after(step, agreed):
            self._report_progress(None)
            return 0.0
        began = time.monotonic()
        self._report_progress(self._settings.timeouts.hang_seconds)
        self._checkpointer.advance(agreed)
        if wanted is not None:
            self._save_what_was_wanted(wanted, step)
        if self._checkpointer.due(step):
            self._save_or_want(step)
        stall = time.monotonic() - began
        self._report_progress(self._process.watchdog.deadline_after_stall(stall))
        return stall

    def save_and_wait(self, step: int) -> None:
        """Told to stop: what was done so far becomes durable before the process ends."""
        if self._mode is CheckpointMode.NONE:
            return
        self._report_progress(2 * self._process.timeouts.drain_seconds)
        if self._checkpointer.begun_step != step:
            self._save_now(step)
        self._checkpointer.wait()

    def save_the_end(self) -> bool:
        """The last step must be durable before the run may call itself finished.

        False where the pod must end first: its next attempt saves it.

        Raises:
            LastSaveFailed: twice.
        """
        step = self._settings.max_steps
        if self._mode is CheckpointMode.NONE:
            return True
        self._checkpointer.wait(within=self._process.timeouts.barrier_seconds)
        if self._checkpointer.committed_step != step:
            self._save_now(step)
            self._checkpointer.wait(within=self._process.timeouts.barrier_seconds)
        if self._checkpointer.committed_step == step:
            return True
        if self._job.agree(Votes(stop=float(self._process.stop.requested))).stop:
            self._process.stop.request()
            return False
        raise LastSaveFailed(
            f"step {step} is done but could not be saved, twice: {self._checkpointer.last_failure}"
        )

    def _save_or_want(self, step: int) -> None:
        is_beside = self._mode.is_asynchronous and self._snapshots.are_taken
        if not is_beside or step == self._settings.max_steps:
            self._save_now(step)
            return
        # What this one writes from is needed beside what it was agreed on, and what is filled.
        if not self._job.everyone(self._snapshots.has_free_buffer):
            self._checkpointer.wait()
        self._snapshots.want(step)
        self._wanted = step

    def _save_what_was_wanted(self, wanted: int, step: int) -> None:
        lease = self._snapshots.lease(wanted)
        if lease is None:  # on no rank: it is whole on all of them or on none
            self._save_now(step)
        else:
            self._checkpointer.save(wanted, lambda: lease)

    def _save_now(self, step: int) -> None:
        """Begin a save of the state as it is, which is that after ``step``."""
        if self._mode.is_asynchronous:
            patience = self.patience / 2  # for memory that is still being pinned
            self._checkpointer.save(step, lambda: self._snapshots.take_now(within=patience))
            return
        # One that blocks may keep the ranks apart for longer than a step does.
        self._report_progress(self.patience)
        self._job.allow_long_phase(self._process.timeouts)
        self._checkpointer.save(step)
        self._job.expect_progress(self._process.timeouts)
