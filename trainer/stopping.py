"""SIGTERM: the pod is to end. Training stops at the next step boundary, once it has saved.

Where no such boundary will come, because the rank hangs, has just failed or
has not begun, there is nothing to save either, and the process ends at once.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainer.exit_codes import STOPPED_BY_SIGTERM
from trainer.watchdog import Watchdog


class StopSignal:
    """Remembers that SIGTERM came; the loop reads ``requested`` after each step."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.requested = False
        self.is_finished = False
        """The run's last step is saved: whoever is told to stop now has succeeded."""

        self._watchdog = watchdog
        self._stepping = False
        signal.signal(signal.SIGTERM, self._on_sigterm)

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
        self.requested = True
        if self.is_finished:
            return
        if not self._stepping or self._watchdog.seems_hung():
            os._exit(STOPPED_BY_SIGTERM)
