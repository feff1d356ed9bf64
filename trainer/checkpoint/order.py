"""In which order a run tries its checkpoints: without ranks and torch, for a listing too."""

from collections.abc import Sequence
from itertools import takewhile

from trainer.checkpoint.layout import Checkpoint


def in_turn(found: Sequence[Checkpoint], *, run: str, resume_step: int | None) -> list[Checkpoint]:
    """The checkpoints to try, best first, of those ``found``, which are newest first.

    Told to go back to ``resume_step``, a run does so once: whatever it saves from then on
    says so, and is gone on from. Only if asked for by its step is another run's in turn.
    """
    if resume_step is None:
        return list(found)
    own = [checkpoint for checkpoint in found if checkpoint.record.run == run]
    others = [checkpoint for checkpoint in found if checkpoint.record.run != run]
    since = list(takewhile(lambda c: c.record.resume_step == resume_step, own))
    asked_for = [c for c in own[len(since) :] + others if c.record.step == resume_step]
    return since + asked_for
