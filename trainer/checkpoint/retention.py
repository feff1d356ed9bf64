"""Which saves in a folder need not be kept, decided by pure functions of what is found there.

An attempt asks once it has committed. Its own come first, the newest before all, then
what it restored, what is older than that, and last what it passed over or left behind;
so many of them stay as are wished for. What it restored, and has therefore seen to be
whole, thus stays until the attempt has that many of its own.

For ever stays a save whose record is there and cannot be read: a newer trainer may have
written it, or the storage may answer again. And so does what is of another run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from trainer.checkpoint.layout import COMMIT_RECORD, committed, saves


@dataclass(frozen=True, slots=True)
class Save:
    """What is found in a folder that has the name of a save."""

    path: Path
    attempt: int
    step: int
    run: str | None = None
    """Whose checkpoint it is; None if it has no record, or none that can be read."""

    is_unreadable: bool = False
    """It has a record, and what that says cannot be told."""

    @property
    def order(self) -> tuple[int, int]:
        """The higher, the newer."""
        return self.attempt, self.step

    @property
    def is_uncommitted(self) -> bool:
        return self.run is None and not self.is_unreadable


def find(root: Path) -> list[Save]:
    """The saves under ``root``, in no order.

    Raises:
        OSError: the storage fails to answer.
    """
    records = {checkpoint.path: checkpoint.record for checkpoint in committed(root)}
    found = []
    for path, (attempt, step) in saves(root).items():
        if record := records.get(path):
            found.append(Save(path, record.attempt, record.step, record.run))
        else:
            # Also what was committed just now, after the records were read.
            found.append(Save(path, attempt, step, is_unreadable=(path / COMMIT_RECORD).exists()))
    return found


def superfluous(
    found: Iterable[Save], *, run: str, keep_latest: int, attempt: int, restored: Path | None
) -> list[Path]:
    """The checkpoints of ``run`` that ``attempt``, which restored that one, need not keep."""
    own = sorted((save for save in found if save.run == run), key=attrgetter("order"), reverse=True)
    if own and own[0].attempt > attempt:
        return []  # this attempt has been replaced, and its successor decides
    since = [save for save in own if save.attempt == attempt]
    before = own[len(since) :]
    at = next((place for place, save in enumerate(before) if save.path == restored), 0)
    ranking = [*since, *before[at:], *before[:at]]
    return [save.path for save in ranking[keep_latest:]]


def debris(found: Iterable[Save], *, before: tuple[int, int]) -> list[Path]:
    """What was begun before the save of that attempt and step, and never committed."""
    return [save.path for save in found if save.is_uncommitted and save.order < before]
