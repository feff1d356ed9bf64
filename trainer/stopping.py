"""SIGTERM: the pod is to end. Training stops at the next step boundary, once it has saved.

A hung rank never comes to that boundary, so it ends at once.
"""

import os
import signal
from types import FrameType

from trainer.exit_codes import STOPPED_BY_SIGTERM
from trainer.watchdog import Watchdog


class StopSignal:
    """Remembers that SIGTERM came; ``requested`` is read by the loop after each step."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.requested = False
        self._watchdog = watchdog
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if self._watchdog.seems_hung():
            os._exit(STOPPED_BY_SIGTERM)
