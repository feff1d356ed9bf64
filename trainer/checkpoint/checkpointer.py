"""Saves the whole job's state: whole and committed, or not at all.

A save is committed by rank 0 once every rank has said, in the collective that
each step ends with, that its part is durable. A save that fails anywhere is
dropped everywhere, training goes on, and the next interval tries again.

Not covered: shards are not replicated; another writer that fills the disk in mid-save.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainer.checkpoint import layout
from trainer.checkpoint.commits import Commits
from trainer.checkpoint.fingerprint import fingerprint, schedule_change
from trainer.checkpoint.layout import Checkpoint
from trainer.checkpoint.restore import Found, Restorer
from trainer.checkpoint.room import POLL_SECONDS, Room
from trainer.checkpoint.writer import Progress, ShardWriter
from trainer.distributed import Job, Votes
from trainer.events import EventLog
from trainer.settings import CheckpointMode, TrainerSettings
from trainer.snapshots.offers import Durable, Key, durable_of
from trainer.state import TrainState

logger = logging.getLogger(__name__)


class Checkpointer:
    """Every rank calls every method, at the same point of the loop."""

    def __init__(
        self,
        settings: TrainerSettings,
        *,
        job: Job,
        state: TrainState,
        writer: ShardWriter,
        events: EventLog,
        report_progress: Callable[[], None],
        drained_by: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._settings = settings
        self._job = job
        self._state = state
        self._writer = writer
        self._events = events
        self._report_progress = report_progress
        self._drained_by = drained_by
        self._root = settings.run_directory / "checkpoints"
        self._root.mkdir(exist_ok=True)
        self.fingerprint = fingerprint(settings)
        self._run = settings.run_directory.absolute().name
        saved_as = (events.attempt, job.world_size, self.fingerprint, writer.format)
        self._commits = Commits(settings, *saved_as)
        self._room = Room(
            self._root,
            job=job,
            state=state,
            deletions=self._commits.deletions,
            report_progress=report_progress,
            drained_by=drained_by,
        )
        self._restorer = Restorer(
            job=job,
            root=self._root,
            run=self._run,
            fingerprint=self.fingerprint,
            resume_step=settings.checkpoint.resume_step,
        )
        self._found: Found | None = None
        self._saving: Path | None = None
        self._step = 0
        self._begun_at = 0.0
        self.committed_step = 0
        """The newest step that this attempt has committed or restored; the same on every rank."""

        self.last_failure = ""
        """Why the last save that this rank saw dropped was dropped."""

        self._failure = ""
        writer.prepare(state.tensors())

    def due(self, step: int) -> bool:
        checkpoint = self._settings.checkpoint
        if checkpoint.mode is CheckpointMode.NONE:
            return False
        return step % checkpoint.interval_steps == 0 or step == self._settings.max_steps

    def restore(self) -> int:
        """Fill the state from the checkpoint to go on from; return its step, or 0 without any.

        Raises:
            NothingToRestore: none that exists can be used, or not the one asked for.
            OSError: on every rank; the storage fails to answer.
        """
        restored = self._restorer.restore(self._state.tensors(), self._found)
        if restored is None:
            return 0
        self._goes_on_from(restored)
        record = restored.record
        change = schedule_change(self._settings, step=record.step, max_steps=record.max_steps)
        if change and self._job.rank == 0:
            logger.warning("%s", change)
        return record.step

    def durable(self) -> Durable:
        """What the checkpoints say before memory is asked; rank 0's word counts. Collective.

        Raises:
            OSError: on every rank; the storage fails to answer.
        """
        self._found = self._restorer.found()
        found, _ = self._found
        newest = next((each for each in found if each.record.run == self._run), None)
        if newest:  # kept, whatever this attempt goes on from
            self._goes_on_from(newest)
        wish = self._settings.checkpoint.resume_step
        durable = durable_of(found, run=self._run, resume_step=wish)
        return replace(durable, newest_valid=self._newest_valid)

    def save(self, step: int) -> float:
        """Begin a save of the state after ``step``; return the seconds that training waited."""
        started = time.monotonic()
        self.wait()
        folder = self._root / layout.folder_name(step, self._events.attempt)
        self._saving, self._step, self._failure = folder, step, ""
        self._begun_at = time.monotonic()  # the wait was the save before's
        drain_seconds = self._settings.timeouts.drain_seconds
        order = self._events.attempt, step
        if problem := self._room.make(folder, order=order, within=drain_seconds):
            self._drop(problem)
            self._saving = None
        else:
            self._failure = self._begin(folder)
        stall = time.monotonic() - started
        self._events.record("checkpoint_begun", step=step, stall_seconds=stall)
        return stall

    def votes(self) -> Votes:
        """What this rank knows of its part of the save in flight."""
        progress = self._writer.progress() if self._saving else Progress.WRITTEN
        if self._failure:
            progress = Progress.FAILED
        return Votes(
            writing=float(progress is Progress.WRITING), failed=float(progress is Progress.FAILED)
        )

    def acts_after(self, step: int, agreed: Votes) -> bool:
        """Whether a save begins or ends after this step, on any rank; which takes a while."""
        return self.due(step) or self._ends(agreed)

    def advance(self, agreed: Votes) -> None:
        """Commit the save in flight, or drop it, once the ranks agree that it came to that."""
        if not self._ends(agreed):
            return
        assert self._saving is not None
        if agreed.failed:
            self._drop(self._failure or self._writer.failure() or "another rank's part failed")
        elif problem := self._commit(self._saving):
            self._drop(problem)
        else:
            self.committed_step = self._step
        self._saving, self._failure = None, ""

    def wait(self, within: float | None = None) -> None:
        """Return once the save in flight is committed or dropped; ``within`` seconds at most.

        Without ``within``, ``drain_seconds`` is the limit. ``drained_by`` is one in any case.
        """
        limit = within or self._settings.timeouts.drain_seconds
        deadline = time.monotonic() + limit
        while self._saving is not None:
            drained_by = self._drained_by()
            late, stop = time.monotonic() > min(deadline, drained_by), math.isfinite(drained_by)
            agreed = self._job.agree(replace(self.votes(), late=float(late), stop=float(stop)))
            if agreed.late and agreed.writing:
                when = "when the pod must end" if agreed.stop else f"within {limit:g} s"
                self._failure = self._failure or f"not durable {when}"
                agreed = replace(agreed, failed=1.0)
            self.advance(agreed)
            self._report_progress()  # a long wait for storage is no hang
            if self._saving is not None:
                time.sleep(POLL_SECONDS)

    def wait_for_deletions(self) -> None:
        """Return once what retention does not keep is gone; after ``drain_seconds`` at most."""
        self._room.wait_for_deletions(within=self._settings.timeouts.drain_seconds)

    def _ends(self, agreed: Votes) -> bool:
        return self._saving is not None and bool(agreed.failed or not agreed.writing)

    def close(self) -> None:
        """The attempt ends, however: nothing of it goes on in this process. Not collective."""
        self._commits.deletions.close()
        self._writer.close()

    def _goes_on_from(self, checkpoint: Checkpoint) -> None:
        self._commits.restored, record = checkpoint.path, checkpoint.record
        if record.run == self._run:
            self.committed_step = record.step

    def _newest_valid(self) -> Key | None:
        assert self._found is not None
        valid = self._restorer.newest_valid(self._found)
        self._commits.restored, self.committed_step = None, 0  # what is damaged is neither
        if valid is None:
            return None
        self._goes_on_from(valid)
        return valid.record.attempt, valid.record.step

    def _begin(self, folder: Path) -> str:
        """Why this rank's part failed before it began, or nothing."""
        try:
            self._writer.begin(self._state.tensors(), folder)
        except (OSError, MemoryError) as error:  # no memory or process to be had, say
            return f"{type(error).__name__}: {error}"
        return ""

    def _drop(self, reason: str) -> None:
        logger.error(
            "Save of step %d failed (%s); training goes on and the next interval tries again",
            self._step,
            reason,
        )
        self.last_failure = reason
        self._events.record("checkpoint_failed", step=self._step, reason=reason)
        self._writer.abandon()
        if self._job.rank == 0 and self._saving is not None:
            # It holds no checkpoint, and its space may be what the next save needs.
            self._commits.deletions.add([self._saving])

    def _commit(self, folder: Path) -> str:
        """Commit on rank 0; on every rank what prevented it, or nothing."""
        files: list[Any] | None = [None] * self._job.world_size if self._job.rank == 0 else None
        try:
            own, problem = self._writer.finish(), ""
            self._room.refuse_another_place()
            layout.refuse_missing(folder, own)
        except OSError as error:
            own, problem = [], str(error)
        dist.gather_object((own, problem), files, dst=0)
        problem = self._commit_all(folder, files) if files is not None else ""
        return self._job.from_rank_zero(problem)

    def _commit_all(self, folder: Path, told: list[Any]) -> str:
        if problems := [why for _, why in told if why]:
            return "; ".join(problems)
        files = [file for rank_files, _ in told for file in rank_files]
        if problem := self._commits.commit(folder, self._step, files):
            return problem
        seconds = time.monotonic() - self._begun_at
        self._events.record("checkpoint_committed", step=self._step, save_seconds=seconds)
        return ""
