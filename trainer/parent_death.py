"""Ties the life of a process to that of its parent, which may end before it can say so.

Of the standard library only, since processes that import nothing else begin with it.
Not covered: a parent whose thread that started this process ends before the parent does;
Linux takes that for the parent's death.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Be killed when ``parent`` dies; at once if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
