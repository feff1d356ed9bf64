"""Counts requests to stop instead of raising in the middle of a start.

A KeyboardInterrupt between the start of a process and the line that remembers
it would leave that process behind. Only the main thread may use this.
"""

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """``count`` requests came so far; ``descriptor`` is readable when one has just come."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self.descriptor, self._wakeup = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._wakeup, False)
        self._fd_before = signal.set_wakeup_fd(self._wakeup)
        self._handlers_before: dict[signal.Signals, Any] = {
            each: signal.signal(each, self._note) for each in STOP_SIGNALS
        }
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for each, handler in self._handlers_before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self.descriptor)
        os.close(self._wakeup)

    def drain(self) -> None:
        """Make ``descriptor`` wait for the next signal."""
        try:
            while os.read(self.descriptor, 512):
                pass
        except BlockingIOError:
            return

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
