"""Saves the whole job's state and gets it back: whole and committed, or not at all.

A save is committed by rank 0 once every rank has said, in the collective that
each step ends with, that its part is durable. A save that fails anywhere is
dropped everywhere, training goes on, and the next interval tries again.

Not covered yet: free space is not checked ahead; shards are not replicated.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from trainer.checkpoint import layout
from trainer.checkpoint.layout import Checkpoint, CommitRecord
from trainer.checkpoint.writer import Progress, ShardWriter
from trainer.distributed import Job, Votes
from trainer.errors import CannotTrain
from trainer.events import EventLog
from trainer.settings import CheckpointMode, TrainerSettings
from trainer.state import TrainState

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.005


class NothingToRestore(CannotTrain):
    """Checkpoints exist, and none of them can be used by this run."""


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
    ) -> None:
        self._settings = settings
        self._job = job
        self._state = state
        self._writer = writer
        self._events = events
        self._report_progress = report_progress
        self._root = settings.run_directory / "checkpoints"
        self._root.mkdir(parents=True, exist_ok=True)
        self._saving: Path | None = None
        self._step = 0
        self._begun_at = 0.0
        self.committed_step = 0
        """The newest step that this attempt has committed; the same on every rank."""

        self._too_late = ""

    def due(self, step: int) -> bool:
        checkpoint = self._settings.checkpoint
        if checkpoint.mode is CheckpointMode.NONE:
            return False
        return step % checkpoint.interval_steps == 0 or step == self._settings.max_steps

    def restore(self) -> int:
        """Fill the state from the newest valid checkpoint; return its step, or 0 if none exists.

        Raises:
            NothingToRestore: checkpoints exist, but all are damaged or of other settings.
        """
        candidates = self._job.from_rank_zero(layout.committed(self._root))
        reasons = []
        for checkpoint in candidates:
            problem = self._why_unusable(checkpoint) or self._read(checkpoint)
            if problem is None:
                return checkpoint.record.step
            reasons.append(f"{checkpoint.path.name}: {problem}")
            logger.warning("Passed over checkpoint %s", reasons[-1])
        if reasons:
            raise NothingToRestore(
                f"{self._root}: no checkpoint can be restored ({'; '.join(reasons)}); repair or "
                "move this folder away, or give the run a new id to start over"
            )
        return 0

    def save(self, step: int) -> float:
        """Begin a save of the state after ``step``; return the seconds that training waited."""
        started = time.monotonic()
        self.wait()
        folder = self._root / layout.folder_name(step, self._events.attempt)
        self._saving, self._step, self._begun_at, self._too_late = folder, step, started, ""
        if self._prepare(folder):
            self._writer.begin(self._state.tensors(), folder)
        stall = time.monotonic() - started
        self._events.record("checkpoint_begun", step=step, stall_seconds=stall)
        return stall

    def votes(self) -> Votes:
        """What this rank knows of its part of the save in flight."""
        progress = self._writer.progress() if self._saving else Progress.WRITTEN
        return Votes(
            writing=float(progress is Progress.WRITING), failed=float(progress is Progress.FAILED)
        )

    def advance(self, agreed: Votes) -> None:
        """Commit the save in flight, or drop it, once the ranks agree that it came to that."""
        if self._saving is None or (agreed.writing and not agreed.failed):
            return
        if agreed.failed:
            self._drop(self._writer.failure() or self._too_late or "another rank's part failed")
        elif problem := self._commit(self._saving):
            self._drop(problem)
        else:
            self.committed_step = self._step
        self._saving = None

    def wait(self, within: float | None = None) -> None:
        """Return once the save in flight is committed or dropped; ``within`` seconds at most.

        Without ``within``, ``drain_seconds`` is the limit.
        """
        limit = within or self._settings.timeouts.drain_seconds
        deadline = time.monotonic() + limit
        while self._saving is not None:
            votes = self.votes()
            if votes.writing and time.monotonic() > deadline:
                self._too_late = f"not durable within {limit:g} s"
                votes = Votes(failed=1.0)
            self.advance(self._job.agree(votes))
            self._report_progress()  # a long wait for storage is no hang
            if self._saving is not None:
                time.sleep(_POLL_SECONDS)

    def _prepare(self, folder: Path) -> bool:
        """Make the folder; where one rank cannot, the save is dropped on all."""
        problem = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{folder}: {error.strerror}"
        if self._job.everyone(not problem):
            return True
        self._drop(problem or "another rank cannot make the folder")
        self._saving = None
        return False

    def _drop(self, reason: str) -> None:
        logger.error(
            "Save of step %d failed (%s); training goes on and the next interval tries again",
            self._step,
            reason,
        )
        self._events.record("checkpoint_failed", step=self._step, reason=reason)
        self._writer.abandon()
        if self._job.rank == 0 and self._saving is not None:
            # It holds no checkpoint, and its space may be what the next save needs.
            shutil.rmtree(self._saving, ignore_errors=True)

    def _commit(self, folder: Path) -> str:
        """Commit on rank 0; on every rank what prevented it, or nothing."""
        files: list[Any] | None = [None] * self._job.world_size if self._job.rank == 0 else None
        try:
            own, problem = self._writer.finish(), ""
        except OSError as error:
            own, problem = [], str(error)
        dist.gather_object((own, problem), files, dst=0)
        problem = self._commit_record(folder, files) if files is not None else ""
        return self._job.from_rank_zero(problem)

    def _commit_record(self, folder: Path, files: list[Any]) -> str:
        problems = [why for _, why in files if why]
        record = CommitRecord(
            step=self._step,
            attempt=self._events.attempt,
            world_size=self._job.world_size,
            fingerprint=fingerprint(self._settings),
            files=tuple(file for rank_files, _ in files for file in rank_files),
        )
        if problems:
            return "; ".join(problems)
        try:
            layout.commit(folder, record)
        except OSError as error:
            return str(error)
        seconds = time.monotonic() - self._begun_at
        self._events.record("checkpoint_committed", step=self._step, save_seconds=seconds)
        layout.clean_up(
            self._root,
            keep_latest=self._settings.checkpoint.keep_latest,
            attempt=self._events.attempt,
        )
        return ""

    def _why_unusable(self, checkpoint: Checkpoint) -> str | None:
        """What all ranks together find wrong with it. Collective: each reads its share."""
        expected = fingerprint(self._settings)
        if checkpoint.record.fingerprint != expected:
            return "its settings differ: " + _difference(checkpoint.record.fingerprint, expected)
        share = checkpoint.record.files[self._job.rank :: self._job.world_size]
        problem = layout.what_is_damaged(checkpoint, share)
        found: list[Any] = [None] * self._job.world_size
        dist.all_gather_object(found, problem)
        return next((text for text in found if text), None)

    def _read(self, checkpoint: Checkpoint) -> str | None:
        """Read it into the live state; what went wrong, in words, or None."""
        try:
            with torch.no_grad():
                dcp.load(self._state.tensors(), checkpoint_id=checkpoint.path)
        except CheckpointException as error:
            return "; ".join(f"rank {rank}: {why[0]}" for rank, why in error.failures.items())
        return None


def fingerprint(settings: TrainerSettings) -> dict[str, Any]:
    """The settings that must not change between save and restore."""
    fixed: dict[str, Any] = json.loads(settings.model_dump_json(include={"model", "data"}))
    fixed["model"].pop("activation_checkpointing")  # costs time, changes no result
    return fixed


def _difference(saved: dict[str, Any], wanted: dict[str, Any]) -> str:
    return ", ".join(
        f"{group}.{key} {saved.get(group, {}).get(key)!r} is now {value!r}"
        for group, values in wanted.items()
        for key, value in values.items()
        if saved.get(group, {}).get(key) != value
    )
