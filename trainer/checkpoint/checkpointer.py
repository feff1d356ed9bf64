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

from trainer.checkpoint import layout
from trainer.checkpoint.commits import Commits
from trainer.checkpoint.fingerprint import fingerprint
from trainer.checkpoint.resumption import Resumption
from trainer.checkpoint.room import POLL_SECONDS, Room
from trainer.checkpoint.writer import HeldShard, Progress, ShardWriter
from trainer.distributed import Job, Votes
from trainer.events import EventLog
from trainer.settings import CheckpointMode, TrainerSettings
from trainer.snapshots.offers import Durable
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
        self._resumption = Resumption(
            settings, job=job, root=self._root, fingerprint=self.fingerprint, commits=self._commits
        )
        self._saving: Path | None = None
        self._held: HeldShard | None = None
        self._step = 0
        self._begun_at = 0.0
        self.last_failure = ""
        """Why the last save that this rank saw dropped was dropped."""

        self._failure = ""

    @property
    def committed_step(self) -> int:
        """The newest step that this attempt has committed or restored; the same on every rank."""
        return self._commits.committed_step

    @property
    def begun_step(self) -> int:
        """The step of the newest save that this attempt has begun; 0 before the first."""
        return self._step

    def prepare(self) -> None:
        """Begin to get memory ready that states wait in to be written; returns at once.

        Of no use where every save is of a shard that is held in memory.
        """
        self._writer.prepare(self._state.tensors())

    def due(self, step: int) -> bool:
        checkpoint = self._settings.checkpoint
        if checkpoint.mode is CheckpointMode.NONE:
            return False
        return step % checkpoint.interval_steps == 0 or step == self._settings.max_steps

    def restore(self) -> int:
        """As ``Resumption.restore``."""
        return self._resumption.restore(self._state.tensors())

    def durable(self) -> Durable:
        """As ``Resumption.durable``."""
        return self._resumption.durable()

    def save(self, step: int, held: Callable[[], HeldShard | None] = lambda: None) -> None:
        """Begin a save of the state after ``step``, once the save in flight is over.

        ``held`` is asked then for that state in memory, which is let go of at the end of the
        save; without it, the state must be that of ``step`` now, and training waits for a copy.
        """
        started = time.monotonic()
        self.wait()
        self._held = held()
        folder = self._root / layout.folder_name(step, self._events.attempt)
        self._saving, self._step, self._failure = folder, step, ""
        self._begun_at = time.monotonic()  # the wait was the save before's
        drain_seconds = self._settings.timeouts.drain_seconds
        order = self._events.attempt, step
        if problem := self._room.make(folder, order=order, within=drain_seconds):
            self._drop(problem)
            self._end()
        else:
            self._failure = self._begin(folder)
        stall = time.monotonic() - started
        self._events.record("checkpoint_begun", step=step, stall_seconds=stall)

    def votes(self) -> Votes:
        """What this rank knows of its part of the save in flight."""
        progress = self._writer.progress() if self._saving else Progress.WRITTEN
        if progress is Progress.WRITTEN and self._held and not self._held.is_intact():
            self._failure = self._failure or "its memory was filled anew before it was written"
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
            self._commits.committed_step = self._step
        self._end()

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

    def _end(self) -> None:
        if self._held is not None:
            self._held.release()
        self._saving, self._held, self._failure = None, None, ""

    def _begin(self, folder: Path) -> str:
        """Why this rank's part failed before it began, or nothing."""
        held = self._held.shard if self._held else None
        try:
            self._writer.begin(self._state.tensors(), folder, held)
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
        try:
            own, problem = self._writer.finish(), ""
            self._room.refuse_another_place()
            layout.refuse_missing(folder, own)
        except OSError as error:
            own, problem = [], str(error)
        problem = self._commits.commit_all(self._job, folder, self._step, own, problem)
        if not problem and self._job.rank == 0:
            seconds = time.monotonic() - self._begun_at
            self._events.record("checkpoint_committed", step=self._step, save_seconds=seconds)
        return problem
