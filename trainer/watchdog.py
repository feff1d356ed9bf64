"""Notices that this rank hangs: saves the stacks of its threads, and ends it if nobody else will.

It runs in C, in a thread of its own, so that it works while the interpreter is
stuck in a collective.
"""

import faulthandler
import time
from pathlib import Path


class Watchdog:
    """``seconds`` is the deadline of ordinary progress; longer phases are announced."""

    def __init__(self, stacks: Path, *, seconds: float, exits: bool) -> None:
        stacks.parent.mkdir(parents=True, exist_ok=True)
        self._file = stacks.open("a")
        self._seconds = seconds
        self._exits = exits
        self._due = time.monotonic() + seconds
        self._since = time.monotonic()

    def expect_progress(self, within: float | None = None) -> None:
        """Progress was made; the next is due ``within`` seconds, or the ordinary deadline."""
        seconds = within or self._seconds
        self._since = time.monotonic()
        self._due = self._since + seconds
        faulthandler.dump_traceback_later(seconds, exit=self._exits, file=self._file)

    def seems_hung(self) -> bool:
        """No progress for half of the time that it may take, which is many times a step."""
        return time.monotonic() > (self._since + self._due) / 2

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._file.close()
