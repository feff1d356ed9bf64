"""What an attempt knows of the checkpoints that are there when it begins, and takes from them."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.checkpoint.commits import Commits
from trainer.checkpoint.fingerprint import schedule_change
from trainer.checkpoint.layout import Checkpoint
from trainer.checkpoint.restore import Found, Restorer
from trainer.distributed import Job
from trainer.settings import TrainerSettings
from trainer.snapshots.offers import Durable, Key, durable_of

logger = logging.getLogger(__name__)


class Resumption:
    """Every rank calls every method, at the same point; what rank 0 finds counts for all."""

    def __init__(
        self,
        settings: TrainerSettings,
        *,
        job: Job,
        root: Path,
        fingerprint: Mapping[str, Any],
        commits: Commits,
    ) -> None:
        """``commits`` are told what they must spare and need not save."""
        self._settings = settings
        self._job = job
        self._run = settings.run_directory.absolute().name
        self._commits = commits
        self._restorer = Restorer(
            job=job,
            root=root,
            run=self._run,
            fingerprint=dict(fingerprint),
            resume_step=settings.checkpoint.resume_step,
        )
        self._found: Found | None = None
        """Listed once: storage may be slow."""

    def restore(self, tensors: dict[str, Tensor]) -> int:
        """Fill ``tensors`` from the checkpoint to go on from; its step, or 0 without any.

        Raises:
            NothingToRestore: none that exists can be used, or not the one asked for.
            OSError: the storage fails to answer.
        """
        restored = self._restorer.restore(tensors, self._found)
        if restored is None:
            return 0
        self._goes_on_from(restored)
        record = restored.record
        change = schedule_change(self._settings, step=record.step, max_steps=record.max_steps)
        if change and self._job.rank == 0:
            logger.warning("%s", change)
        return record.step

    def durable(self) -> Durable:
        """What the checkpoints say before memory is asked.

        Raises:
            OSError: the storage fails to answer.
        """
        self._found = self._restorer.found()
        found, _ = self._found
        newest = next((each for each in found if each.record.run == self._run), None)
        if newest:  # kept, whatever this attempt goes on from
            self._goes_on_from(newest)
        wish = self._settings.checkpoint.resume_step
        durable = durable_of(found, run=self._run, resume_step=wish)
        return replace(durable, newest_valid=self._newest_valid)

    def _newest_valid(self) -> Key | None:
        assert self._found is not None
        valid = self._restorer.newest_valid(self._found)
        self._commits.restored, self._commits.committed_step = None, 0  # what is damaged is neither
        if valid is None:
            return None
        self._goes_on_from(valid)
        return valid.record.attempt, valid.record.step

    def _goes_on_from(self, checkpoint: Checkpoint) -> None:
        self._commits.restored, record = checkpoint.path, checkpoint.record
        if record.run == self._run:
            self._commits.committed_step = record.step
