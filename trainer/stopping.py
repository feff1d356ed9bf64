"""SIGTERM: the pod is to end. Training stops at the next step boundary, once it has saved.

Where no such boundary will come, because the rank hangs, has just failed or
has not begun, there is nothing to save either, and the process ends at once.
"""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainer.exit_codes import STOPPED_BY_SIGTERM
from trainer.watchdog import Watchdog


class StopSignal:
    """Remembers that SIGTERM came; the loop reads ``requested`` after each step.

    Whatever is saved from then on has ``drain_seconds`` in all, however many waits that takes.
    """

    def __init__(self, watchdog: Watchdog, *, drain_seconds: float) -> None:
        self.requested = False
        self.drained_by = math.inf
        """Monotonic seconds until which saves may be waited for; infinite until requested."""

        self.is_finished = False
        """The run's last step is saved: whoever is told to stop now has succeeded."""

        self._watchdog = watchdog
        self._drain_seconds = drain_seconds
        self._stepping = False
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def request(self) -> None:
        """Stop, if nobody has asked for it yet: this pod is told to, or another one of the job."""
        if not self.requested:
            self.drained_by = time.monotonic() + self._drain_seconds
        self.requested = True

    @contextmanager
    def heeded_after_each_step(self) -> Iterator[None]:
        """While the block runs, whoever runs it promises to come to a step boundary."""
        self._stepping = True
        try:
            yield
        except BaseException:
            if self.requested:
                os._exit(STOPPED_BY_SIGTERM)
            raise
        finally:
            self._stepping = False

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.request()
        if self.is_finished:
            return
        if not self._stepping or self._watchdog.seems_hung():
            os._exit(STOPPED_BY_SIGTERM)
