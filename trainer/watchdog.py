"""Notices that this rank hangs: saves its stacks, asks for a restart, and may end the process.

A thread looks whether progress is overdue. It saves the stacks and what PyTorch has
recorded of its collectives, then tells the recovery layer. A timer in C follows a
grace later: it needs no interpreter, so it works while a call holds the GIL, and it
ends the process where the layer wants that. By then every other rank, which waits for
this one and is overdue at the same moment, has saved its stacks too.

Not covered: a process that is frozen as a whole. Its silence speaks for it.
"""

import faulthandler
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.diagnosis.flight_recorder import save_collectives
from trainer.diagnosis.stack_file import (
    NO_PROGRESS,
    PROGRESS_AGAIN,
    TOLD_TO_STOP,
    StackFile,
    attempt_folder,
)
from trainer.pace import Pace

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""From a hang that is noticed to the end of the process: all ranks save their stacks meanwhile."""

RESTART_GRACE_SECONDS = 5.0
"""The same where the layer restarts the rank within the process, which may well succeed."""

_POLL_SECONDS = 0.2


class Watchdog:
    """``seconds`` is the deadline of progress until the steps tell a shorter one."""

    def __init__(
        self, run_directory: Path, *, rank: int, seconds: float, shortest: float, exits: bool
    ) -> None:
        self._run_directory = run_directory
        self._rank = rank
        self._exits = exits
        self._pace = Pace(shortest=shortest, longest=seconds)
        self._report_hang: Callable[[], None] | None = None
        self._folder = run_directory / "stacks"  # until an attempt has its number
        self._stacks = StackFile(self._folder, rank)
        self._since = time.monotonic()
        self._due = self._since + seconds
        self._noticed = self._due
        """The deadline that was acted on last; each is once."""

        self._was_overdue = False
        """Since the last step that was counted: stacks that were saved show no end."""

        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def begin_attempt(
        self, attempt: int, rank: int, report_hang: Callable[[], None] | None
    ) -> None:
        """From here on stacks belong to ``attempt``.

        ``report_hang`` restarts the rank within this process; it is called from a thread.
        """
        folder = attempt_folder(self._run_directory, attempt)
        # First, and with the timer still set: storage may not answer, and SIGTERM may come.
        stacks = StackFile(folder, rank)
        faulthandler.cancel_dump_traceback_later()  # it holds the old file
        old, self._stacks = self._stacks, stacks
        self._rank, self._folder = rank, folder
        self._pace.begin_attempt()
        self._report_hang = report_hang
        self._was_overdue = False
        self._arm()
        old.close()

    def count_step(self, seconds: float) -> None:
        """An ordinary step is complete, and took so long."""
        self._pace.count_step(seconds)
        if self._was_overdue:
            self._was_overdue = False
            self._stacks.write(PROGRESS_AGAIN)

    def expect_progress(self, within: float | None = None) -> None:
        """Progress was made; the next is due ``within`` seconds, or when the pace says."""
        self._since = time.monotonic()
        self._was_overdue |= self._since > self._due
        self._due = self._since + (within or self._pace.deadline_seconds)
        self._arm()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    @contextmanager
    def at_an_end(self, within: float | None) -> Iterator[None]:
        """However the block ends, what comes then is no step; it may take ``within`` seconds."""
        try:
            yield
        finally:
            self.expect_progress(within)

    def deadline_after_stall(self, seconds: float) -> float:
        """A save has begun or ended here, in so long; other ranks may be at it for yet as long."""
        self._pace.count_stall(seconds)
        return self._pace.deadline_after_save_seconds

    def seems_hung(self) -> bool:
        """No progress for half of the time that it may take, which is many times a step."""
        return time.monotonic() > (self._since + self._due) / 2

    def note_stop(self) -> None:
        """SIGTERM came: whatever ends this rank now, it is not to blame. Handlers may call it."""
        self._stacks.write(TOLD_TO_STOP)

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._stacks.close()

    def _arm(self) -> None:
        grace = RESTART_GRACE_SECONDS if self._report_hang else GRACE_SECONDS
        seconds = max(self._due - time.monotonic(), 0.0) + grace
        faulthandler.dump_traceback_later(seconds, exit=self._exits, file=self._stacks.file)

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            due = self._due
            if time.monotonic() > due and due != self._noticed:
                self._noticed = due
                self._notice()

    def _notice(self) -> None:
        stacks, report_hang = self._stacks, self._report_hang
        seconds = time.monotonic() - self._since
        stacks.write(f"{NO_PROGRESS} for {seconds:.1f} s")
        stacks.add_stacks()
        logger.error("No progress for %.1f s; stacks are in %s", seconds, stacks.path)
        save_collectives(self._folder, self._rank)
        if report_hang is None:
            return
        try:
            report_hang()
        except Exception:
            # The layer's own, longer timeout follows. This thread has the next attempt to watch.
            logger.exception("The recovery layer could not be told of the hang")
