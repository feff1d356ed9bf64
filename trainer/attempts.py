"""Numbers the attempts of a run, across processes and pods, by files in its folder."""

import itertools
import os
from pathlib import Path

from trainer.checkpoint.layout import newest_attempt


def claim_attempt(run_directory: Path) -> int:
    """The next number, from 1, that no attempt of this run has had. One rank calls it.

    Checkpoints are ordered by it, so those that are there count too: without its notes a
    run would otherwise take what it saves next for older than what it restored.
    """
    folder = run_directory / "attempts"
    folder.mkdir(exist_ok=True)
    taken = max(newest_claim(run_directory), newest_attempt(run_directory / "checkpoints"))
    for number in itertools.count(taken + 1):
        try:
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue
        return number
    raise AssertionError("unreachable")


def newest_claim(run_directory: Path) -> int:
    """The highest number claimed, by which an attempt sees that it was replaced; 0 without any.

    Raises:
        OSError: the storage fails to answer.
    """
    folder = run_directory / "attempts"
    if not folder.is_dir():
        return 0
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=0)
