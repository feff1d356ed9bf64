"""Chooses the checkpoint that a run goes on from, with all ranks alike, and reads it.

The order is that of the commit records. What is damaged, or is not this run's, is
passed over for the one before it, with a warning. Where checkpoints exist and none
can be used, that is an error: a run never starts again from step 0 unawares.

Not covered: files that change between their check and their reading.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from torch import Tensor

from trainer.checkpoint import layout, local_reader
from trainer.checkpoint.evidence import last_committed_step
from trainer.checkpoint.fingerprint import difference
from trainer.checkpoint.layout import Checkpoint, FileRecord, ShardFormat, Unusable
from trainer.checkpoint.metadata import read_dcp
from trainer.checkpoint.order import in_turn
from trainer.distributed import Job
from trainer.errors import CannotTrain

logger = logging.getLogger(__name__)

T = TypeVar("T")

Found: TypeAlias = tuple[list[Checkpoint], list[Unusable]]
"""Checkpoints whose record can be read, newest first, whatever is in their files; and others."""


class NothingToRestore(CannotTrain):
    """Checkpoints exist or are asked for, and none of them can be used by this run."""


@dataclass(frozen=True, slots=True)
class Restorer:
    """Every rank calls ``restore``, at the same point."""

    job: Job
    root: Path
    """The folder of the run's checkpoints."""

    run: str
    fingerprint: dict[str, Any]
    resume_step: int | None

    def restore(self, tensors: dict[str, Tensor], found: Found | None = None) -> Checkpoint | None:
        """Fill ``tensors`` from the first usable checkpoint, and return it; None if none exists.

        What rank 0 looks for, all look for. ``found`` is what ``found`` has told, to list once.

        Raises:
            NothingToRestore: none of those that exist can be used, or not the one asked for.
            OSError: on every rank; the storage fails to answer, for all that could be used.
        """
        return self._agreed()._restore(tensors, found or self.found())

    def newest_valid(self, found: Found) -> Checkpoint | None:
        """The first of this run's that ``restore`` could take, its files verified. Collective.

        Raises:
            OSError: on every rank; the storage fails to answer.
        """
        return self._agreed()._newest_valid(found)

    def found(self) -> Found:
        """What rank 0 finds, so that a file system that shows ranks different things is no harm.

        Raises:
            OSError: on every rank; the storage fails to answer.
        """
        nothing: Found = ([], [])
        return self._from_storage(lambda: layout.examine(self.root), otherwise=nothing)

    def _agreed(self) -> "Restorer":
        wish = self.job.from_rank_zero((self.run, self.fingerprint, self.resume_step))
        run, fingerprint, resume_step = wish
        return replace(self, run=run, fingerprint=fingerprint, resume_step=resume_step)

    def _newest_valid(self, found: Found) -> Checkpoint | None:
        turns = in_turn(found[0], run=self.run, resume_step=self.resume_step)
        for checkpoint in (each for each in turns if each.record.run == self.run):
            if self._why_unusable(checkpoint):
                continue
            # One for other ranks is not verified: restore refuses to pass it over.
            other_ranks = local_reader.why_other_ranks(checkpoint.record, self.job.world_size)
            if other_ranks or self._damage(checkpoint) is None:
                return checkpoint
        return None

    def _restore(self, tensors: dict[str, Tensor], found_by_all: Found) -> Checkpoint | None:
        found, passed_over = list(found_by_all[0]), list(found_by_all[1])
        for each in passed_over:
            logger.warning("Passed over checkpoint %s", each)
        for checkpoint in in_turn(found, run=self.run, resume_step=self.resume_step):
            problem = self._why_unusable(checkpoint)
            if problem is None:
                self._refuse_other_ranks(checkpoint, found, passed_over)
                problem = self._damage(checkpoint) or self._read(checkpoint, tensors)
            if problem is None:
                self._say_where_it_goes_on(checkpoint)
                return checkpoint
            passed_over.append(problem)
            logger.warning("Passed over checkpoint %s", problem)
        if self.resume_step is not None or passed_over:
            words = self._refusal(found, passed_over)
            if any(each.may_heal for each in passed_over):
                raise OSError(words)
            raise NothingToRestore(words)
        self._refuse_what_was_lost()
        if self.job.rank == 0 and layout.newest_attempt(self.root):
            logger.warning("%s holds saves, none of them committed; starting over", self.root)
        return None

    def _say_where_it_goes_on(self, checkpoint: Checkpoint) -> None:
        record, wish = checkpoint.record, ""
        if self.resume_step not in (None, record.step):
            wish = f"; checkpoint.resume_step {self.resume_step} was obeyed before"
        logger.info("Going on from step %d (attempt %d)%s", record.step, record.attempt, wish)

    def _refuse_what_was_lost(self) -> None:
        """A run without checkpoints that had some must not begin again unawares."""
        directory = self.root.parent
        step = self._from_storage(lambda: last_committed_step(directory), otherwise=None)
        if step is not None:
            raise NothingToRestore(
                f"{self.root}: holds no checkpoint, and {directory / 'events'} say that step "
                f"{step} was committed; bring the folder back, or give the run a new id to "
                "start over"
            )

    def _from_storage(self, ask: Callable[[], T], *, otherwise: T) -> T:
        """What rank 0 is answered, on every rank, or ``OSError`` on every rank. Collective."""
        is_asked = self.job.rank == 0
        told = _attempt(lambda: ask() if is_asked else otherwise)
        answer, failure = self.job.from_rank_zero(told)
        if failure:
            raise OSError(failure)
        return cast(T, answer)

    def _why_unusable(self, checkpoint: Checkpoint) -> Unusable | None:
        """Why this run cannot go on from it, whatever is in its files."""
        record, name = checkpoint.record, checkpoint.path.name
        if record.run != self.run and self.resume_step is None:
            wish = f"checkpoint.resume_step {record.step} would take it"
            return Unusable(name, f"it is of run {record.run!r}; {wish}")
        if record.fingerprint != self.fingerprint:
            changes = difference(record.fingerprint, self.fingerprint)
            return Unusable(name, f"its settings differ: {changes}")
        return None

    def _refuse_other_ranks(
        self, checkpoint: Checkpoint, found: list[Checkpoint], passed_over: list[Unusable]
    ) -> None:
        """Before a byte is read, and for good: the one before it would cost steps for nothing."""
        problem = local_reader.why_other_ranks(checkpoint.record, self.job.world_size)
        if problem and self.resume_step is not None:
            problem += f"; {self.root} has {self._list_of(found, passed_over)}"
        if problem:
            raise NothingToRestore(f"{checkpoint.path}: {problem}")

    def _damage(self, checkpoint: Checkpoint) -> Unusable | None:
        """What all ranks together find wrong with its files. Collective: each reads its share.

        Raises:
            OSError: on every rank; not only these files cannot be read.
        """
        name, record = checkpoint.path.name, checkpoint.record
        share = share_of(record.files, rank=self.job.rank, world_size=self.job.world_size)
        damage, failure = _attempt(lambda: layout.what_is_damaged(checkpoint, share))
        told = self.job.from_every_rank((damage, failure))
        if failures := [text for _, text in told if text]:
            self._refuse_storage_that_is_gone()
            return Unusable(name, f"cannot be read: {failures[0]}", may_heal=True)
        damages = (Unusable(name, text) for text, _ in told if text)
        return next(damages, None)

    def _read(self, checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> Unusable | None:
        """Read it into ``tensors``; what went wrong on any rank, in words, or None."""
        if checkpoint.record.format is ShardFormat.DCP:
            problem = read_dcp(checkpoint, tensors)
        else:
            problem = local_reader.read(checkpoint, tensors, self.job.rank)
        problem = next((text for text in self.job.from_every_rank(problem) if text), None)
        if problem is None:
            return None
        self._refuse_storage_that_is_gone()
        return Unusable(checkpoint.path.name, problem)

    def _refuse_storage_that_is_gone(self) -> None:
        """Raises ``OSError`` on every rank. Collective."""
        _, failure = _attempt(lambda: layout.probe(self.root))
        if failures := [text for text in self.job.from_every_rank(failure) if text]:
            raise OSError(failures[0])

    def _refusal(self, found: list[Checkpoint], passed_over: list[Unusable]) -> str:
        if self.resume_step is None:
            return (
                f"{self.root}: no checkpoint can be restored "
                f"({'; '.join(str(each) for each in passed_over)}); repair or move this folder "
                "away, or give the run a new id to start over"
            )
        return (
            f"checkpoint.resume_step {self.resume_step}: {self.root} has no valid checkpoint of "
            f"this step; it has {self._list_of(found, passed_over)}; give the step of a valid "
            "one, or leave checkpoint.resume_step out"
        )

    def _list_of(self, found: list[Checkpoint], passed_over: list[Unusable]) -> str:
        """What exists, in words. Collective: what was not tried yet is verified."""
        known = {each.name: each.reason for each in passed_over}
        lines = []
        for checkpoint in found:
            name, record = checkpoint.path.name, checkpoint.record
            unusable = None if name in known else self._why_unusable(checkpoint)
            state = known.pop(name, None) or (unusable and unusable.reason)
            if state is None and local_reader.why_other_ranks(record, self.job.world_size):
                state = f"for {record.world_size} ranks alone, not verified"
            if state is None:
                damage = self._damage(checkpoint)
                state = damage.reason if damage else "valid"
            lines.append(f"step {record.step} of attempt {record.attempt} ({state})")
        lines += [f"{name} ({reason})" for name, reason in known.items()]
        return ", ".join(lines) or "none at all"


def share_of(files: Iterable[FileRecord], *, rank: int, world_size: int) -> tuple[FileRecord, ...]:
    """The files that ``rank`` verifies. The largest are dealt out first: one small file among
    them must not give a rank two large ones, for which all others would wait."""
    largest_first = sorted(files, key=lambda file: file.size_bytes, reverse=True)
    return tuple(largest_first[rank::world_size])


def _attempt(ask: Callable[[], T]) -> tuple[T | None, str]:
    """The answer, or why the storage gave none, so that all ranks can be told."""
    try:
        return ask(), ""
    except OSError as error:
        return None, str(error)
