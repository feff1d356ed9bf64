"""Which of the checkpoints found in a folder the run would go on from, and why not the others.

Decides as a restore does, without ranks. Not covered: the number of ranks that the
run will have, on which local shards depend.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint.fingerprint import difference
from trainer.checkpoint.order import in_turn
from trainer.checkpoint.survey import Found, run_of
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Listing:
    root: Path
    found: tuple[Found, ...]
    """The newest checkpoint first."""

    settings: TrainerSettings | None
    """Of the run's last attempt; None where they are not kept or not of this version."""

    fingerprint: dict[str, Any] | None
    """What a checkpoint's must equal; None where that cannot be told."""

    quick: bool

    def why_not_restored(self, found: Found) -> str:
        """Why the run would pass it over, in words; empty if it could go on from it."""
        if found.problem or found.checkpoint is None:
            return found.problem
        record, settings = found.checkpoint.record, self.settings
        run = run_of(self.root, settings)
        resume_step = settings.checkpoint.resume_step if settings else None
        if record.run != run and record.step != resume_step:
            return f"it is of run {record.run!r}, not {run!r}"
        if self.fingerprint is not None and record.fingerprint != self.fingerprint:
            return f"its settings differ: {difference(record.fingerprint, self.fingerprint)}"
        return ""

    def restored(self) -> Found | None:
        """The one that a restore takes."""
        return next((each for each in self._in_turn() if not self.why_not_restored(each)), None)

    def _in_turn(self) -> list[Found]:
        settings = self.settings
        if settings is None or settings.checkpoint.resume_step is None:
            return list(self.found)
        turns = in_turn(
            [each.checkpoint for each in self.found if each.checkpoint],
            run=run_of(self.root, settings),
            resume_step=settings.checkpoint.resume_step,
        )
        by_path = {each.path: each for each in self.found}
        return [by_path[checkpoint.path] for checkpoint in turns]
