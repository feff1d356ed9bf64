"""SIGTERM: the pod is to end. Training stops at the next step boundary, once it has saved.

Where no such boundary will come, because the rank hangs, has just failed or
has not begun, there is nothing to save either, and the process ends at once.
Python calls a signal's handler between two bytecodes, so while the main thread is
stuck in C a thread decides in its place. Not covered: a call that holds the GIL; the
watchdog's own deadline, or the launcher's SIGKILL, ends that.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainer.exit_codes import STOPPED_BY_SIGTERM
from trainer.watchdog import Watchdog

_POLL_SECONDS = 0.1


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
        self._received, signals = os.pipe()
        os.set_blocking(signals, False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # Written in C the moment a signal comes. A forked child must not write there.
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._stand_in, name="stop-signal", daemon=True).start()

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
        self._watchdog.note_stop()
        self.request()
        self._end_unless_a_boundary_comes()

    def _end_unless_a_boundary_comes(self) -> None:
        if self.is_finished:
            return
        if not self._stepping or self._watchdog.seems_hung():
            os._exit(STOPPED_BY_SIGTERM)

    def _stand_in(self) -> None:
        """Wait for signals; decide for a main thread that does not come to hear of them."""
        while True:
            if signal.SIGTERM not in os.read(self._received, 64):
                continue
            time.sleep(_POLL_SECONDS)
            if not self.requested:
                self._watchdog.note_stop()
            while not self.requested:
                self._end_unless_a_boundary_comes()
                time.sleep(_POLL_SECONDS)
