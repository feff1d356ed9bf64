"""Ends this process once the launcher's store, or NVRx's monitor of this process, is gone.

Without the store NVRx waits for ever, without its monitor nobody ends a rank that hangs. The
store is asked in one thread and another counts the silence: a call to a store whose node
vanished without closing its connections does not return. Whoever leaves says so first, and
is not ended for what others left behind.

Not covered: a store that vanishes before the watch begins.
"""

import logging
import os
import select
import threading
import time

import torch.distributed as dist

from trainer.errors import first_line

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_KEY = "steadfast/alive"


def watch_lifelines(
    store: dist.Store, monitor_pid: int, *, silence_seconds: float, leaving: threading.Event
) -> None:
    """Watch from threads; once ``leaving`` is set, only that this process does.

    Args:
        store: A connection that nobody else uses.
        silence_seconds: A store that has not answered for so long is gone.
    """
    answered = threading.Event()

    def ask() -> None:
        while not leaving.wait(LOOK_SECONDS):
            try:
                store.check([_KEY])
            except dist.DistError as error:
                _end(f"The launcher's store is gone ({first_line(error)})", leaving)
            answered.set()

    def look() -> None:
        silence = 0.0  # in looks, so that a process that was stopped does not blame the store
        while not leaving.wait(LOOK_SECONDS):
            silence = 0.0 if answered.is_set() else silence + LOOK_SECONDS
            answered.clear()
            if silence > silence_seconds:
                _end(f"The launcher's store has not answered for {silence:g} s", leaving)
            if monitor is None or monitor.poll(0):
                _end(
                    f"NVRx's monitor, process {monitor_pid}, is gone, with the store or alone",
                    leaving,
                )
        # The same store may keep it from leaving.
        time.sleep(silence_seconds)
        logger.error("Did not come to leave within %g s; this process ends", silence_seconds)
        os._exit(1)

    monitor = _poll_for_end(monitor_pid)
    for target in (ask, look):
        threading.Thread(target=target, name=f"lifelines-{target.__name__}", daemon=True).start()


def _poll_for_end(pid: int) -> "select.poll | None":
    """Ready once the process has ended; None where it has already."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return poll


def _end(why: str, leaving: threading.Event) -> None:
    if not leaving.is_set():
        logger.error("%s; this process ends", why)
        os._exit(1)
