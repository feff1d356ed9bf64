"""Doubt about a state that was restored from memory: how it shows, and how it is remembered.

A snapshot is marked whole with the loss that its rank saw in the step after it. Whoever
goes on from it must see that loss again in the first step, before anything is updated.
If not, the state is struck from memory, for every attempt to come, and so the next
one goes on from an older state.

Not covered: a wrong value that the first step's loss does not depend on.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from trainer.snapshots.offers import Key

_RELATIVE_TOLERANCE = 1e-3
"""On a GPU, where the order of a sum may differ from one time to the next."""

_STRUCK = re.compile(r"struck-(\d+)-(\d+)")


class DoubtfulState(Exception):
    """The restored state is not what was saved; another attempt takes an older one."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What this rank must see in the first step after a restore from memory."""

    attempt: int
    step: int
    """Of the restored state."""

    loss: float | None
    """Of this rank alone in the step after it; None where nobody noted it."""

    device_type: str

    def check(self, loss: float) -> None:
        """Compare this rank's own loss of the first step; any is right where none was noted.

        Raises:
            DoubtfulState: it is another one.
        """
        if self.loss is None or self._is_same(loss, self.loss):
            return
        raise DoubtfulState(
            f"step {self.step + 1} has the loss {loss!r} on this rank and had {self.loss!r} "
            f"before: step {self.step} of attempt {self.attempt} is not restored from memory again"
        )

    def _is_same(self, loss: float, noted: float) -> bool:
        if self.device_type == "cpu":
            return struct.pack("<d", loss) == struct.pack("<d", noted)
        return abs(loss - noted) <= _RELATIVE_TOLERANCE * abs(noted)


def strike(folder: Path, attempt: int, step: int) -> None:
    """Let no attempt go on from this state: all ranks are told so by whoever sees ``folder``.

    A file beside the buffers, not a mark in them: another process may be writing to those.

    Raises:
        OSError: the file cannot be made.
    """
    (folder / f"struck-{attempt}-{step}").touch()


def struck_in(folder: Path) -> frozenset[Key]:
    """The states struck on this node.

    Raises:
        OSError: the folder cannot be read.
    """
    names = (_STRUCK.fullmatch(path.name) for path in folder.iterdir())
    return frozenset((int(name[1]), int(name[2])) for name in names if name)
