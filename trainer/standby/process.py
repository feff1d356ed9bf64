"""What a forked process must still do to be like one that was started plainly.

Not covered: NUMA memory policy and resource limits that a launcher sets for single
workers; those of the container are the standby's own.
"""

import ctypes
import os
import signal
import sys

from trainer.standby.wire import Order

_PR_SET_NAME = 15


def take_over(order: Order, descriptors: list[int]) -> None:
    """Become the process that ``order`` describes. ``descriptors`` are its 0, 1 and 2."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order.cwd)
    os.umask(order.umask)
    os.sched_setaffinity(0, order.processors)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv[:] = order.argv
    for number in order.ignored_signals:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, order.blocked_signals)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # from the system, as at its import; random and uuid do so themselves
    if rank := order.environment.get("RANK"):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"rank {rank}".encode(), 0, 0, 0)
