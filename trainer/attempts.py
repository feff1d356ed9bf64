"""Numbers the attempts of a run, across processes and pods, by files in its folder."""

import itertools
import os
from pathlib import Path


def claim_attempt(run_directory: Path) -> int:
    """The next number, from 1, that no attempt of this run has had. One rank calls it."""
    folder = run_directory / "attempts"
    folder.mkdir(exist_ok=True)
    numbers = (int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    taken = max(numbers, default=0)
    for number in itertools.count(taken + 1):
        try:
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue
        return number
    raise AssertionError("unreachable")
