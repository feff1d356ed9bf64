"""What rank 0 does once every part of a save is durable: commit it, and let go of older ones.

Both only while no later attempt of the run has begun, which may have gone on from what
this one would replace or delete.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainer.attempts import newest_claim
from trainer.checkpoint import layout, retention
from trainer.checkpoint.deletions import Deletions
from trainer.checkpoint.layout import CommitRecord, FileRecord, ShardFormat
from trainer.distributed import Job
from trainer.settings import TrainerSettings

logger = logging.getLogger(__name__)


class Commits:
    """Those of one attempt."""

    def __init__(
        self,
        settings: TrainerSettings,
        attempt: int,
        world_size: int,
        fingerprint: dict[str, Any],
        format: ShardFormat,
    ) -> None:
        self._settings = settings
        self._run_directory = settings.run_directory
        self._keep_latest = settings.checkpoint.keep_latest
        self._attempt = attempt
        self._world_size = world_size
        self._fingerprint = fingerprint
        self._format = format
        self.deletions = Deletions(is_newest_attempt=lambda: not self._successor())
        self.restored: Path | None = None
        """The checkpoint that this attempt went on from, or could go back to."""

        self.committed_step = 0
        """The newest step that this attempt has committed or restored."""

    def commit_all(
        self, job: Job, folder: Path, step: int, own: list[FileRecord], problem: str
    ) -> str:
        """Commit on rank 0 what all ranks wrote: this one ``own``, unless it has a problem.

        Collective. What prevented it, on every rank, or nothing.
        """
        told: list[Any] | None = [None] * job.world_size if job.rank == 0 else None
        dist.gather_object((own, problem), told, dst=0)
        if told is not None:
            problem = "; ".join(why for _, why in told if why) or self.commit(
                folder, step, [file for files, _ in told for file in files]
            )
        return job.from_rank_zero(problem)

    def commit(self, folder: Path, step: int, files: Sequence[FileRecord]) -> str:
        """Make ``folder`` a checkpoint of ``files``, and begin to delete what it replaces.

        Returns:
            What prevented it, or nothing.
        """
        record = CommitRecord(
            step=step,
            attempt=self._attempt,
            world_size=self._world_size,
            fingerprint=self._fingerprint,
            files=tuple(files),
            format=self._format,
            run=self._run_directory.absolute().name,
            max_steps=self._settings.max_steps,
            resume_step=self._settings.checkpoint.resume_step,
        )
        try:
            if successor := self._successor():
                return f"attempt {successor} has begun, and this one may commit no more"
            layout.commit(folder, record)
        except OSError as error:
            return str(error)
        self._delete_what_is_not_kept(record)
        return ""

    def _delete_what_is_not_kept(self, record: CommitRecord) -> None:
        """Begin to, once ``record`` is committed."""
        try:
            found = retention.find(self._run_directory / "checkpoints")
        except OSError as error:  # the new one is committed; the next commit tries again
            logger.warning("Old checkpoints could not be deleted: %s", error)
            return
        self.deletions.add(
            retention.superfluous(
                found,
                run=record.run,
                keep_latest=self._keep_latest,
                attempt=self._attempt,
                restored=self.restored,
            )
        )
        left = retention.debris(found, before=(record.attempt, record.step))
        self.deletions.add(left, unless_committed=True)

    def _successor(self) -> int:
        """The number of a later attempt of this run, which has replaced this one; or 0."""
        newest = newest_claim(self._run_directory)
        return newest if newest > self._attempt else 0
