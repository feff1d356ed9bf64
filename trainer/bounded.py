"""Calls that may never return, given up after a while: dead mounts, lost GPUs.

Not covered: the call itself. Nothing can end a thread that waits in the kernel, so
one that was given up stays, as a daemon, until its call returns or the process ends.
Whoever gives up is expected to leave.
"""

import errno
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bounded(function: Callable[[], T], *, seconds: float) -> T:
    """What ``function`` returns or raises, if it does so in time.

    No child process: to fork is unsafe beside CUDA and EFA, and to start Python anew takes
    longer than all checks together.

    Raises:
        TimeoutError: it did not; errno is ETIMEDOUT.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((function(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=answer, name="bounded", daemon=True).start()
    try:
        result, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
