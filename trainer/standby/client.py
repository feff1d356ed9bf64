"""The first lines of a worker: have the pod's standby process fork it, where there is one.

The process that the launcher started then only stands for the worker: it passes
signals on, and ends as the worker ended, by the same code or signal. Killed with
SIGKILL, it takes the worker along, since the standby sees the connection close.

Not covered: SIGSTOP to this process, which leaves the worker running.
"""

import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

from trainer.standby import wire

LAUNCHER_PID = "STEADFAST_LAUNCHER_PID"
"""Who started this worker; the parent of a forked one is the standby."""

STAND_IN_PID = "STEADFAST_STAND_IN_PID"
"""What the launcher started. A forked worker dies with it."""

GREETING_SECONDS = 60.0
"""For a standby that still imports what this worker would have to import by itself."""

_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGTERM, signal.SIGUSR1,
    signal.SIGUSR2,
)  # fmt: skip


def train_in_a_fork() -> None:
    """Have the standby train in our place, and end as it did; return where there is none."""
    os.environ[LAUNCHER_PID] = str(os.getppid())
    os.environ[STAND_IN_PID] = str(os.getpid())
    address = os.environ.get(wire.ADDRESS)
    connection = _greeted(address) if address else None
    if connection is None:
        return
    with connection:
        status = _stand_for_worker(connection)
    if status != wire.REFUSED:
        _end_like(status)


def is_forked() -> bool:
    """Whether this worker is a fork of the standby process."""
    return os.environ.get(LAUNCHER_PID, str(os.getppid())) != str(os.getppid())


def _greeted(address: str) -> socket.socket | None:
    """A connection to a standby that is ready for us; else this process trains by itself.

    One that still imports is waited for; one that cannot fork closes the connection. Up to here
    nothing is promised: one that wakes up later finds the connection closed.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(GREETING_SECONDS)
    try:
        connection.connect(address)
        its_own, _ = wire.receive(connection)
    except (OSError, EOFError):
        connection.close()
        return None
    ours = wire.read_at_import(os.environ)
    if different := [n for n in {**its_own, **ours} if its_own.get(n) != ours.get(n)]:
        names = ", ".join(sorted(different))
        sys.stderr.write(f"steadfast: not forked: the standby process has another {names}\n")
        connection.close()
        return None
    connection.settimeout(None)
    return connection


def _stand_for_worker(connection: socket.socket) -> int:
    """Order the worker and pass signals on to it until it has ended; how it did."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    handlers = {number: signal.getsignal(number) for number in _PASSED_ON}
    ignored = [int(number) for number, known in handlers.items() if known is signal.SIG_IGN]

    # Python's own handler of a signal that comes just before a wait runs after it, too late;
    # what the kernel's handler writes here ends the wait.
    arrived, written = socket.socketpair()
    for end in (arrived, written):
        end.setblocking(False)
    signal.set_wakeup_fd(written.fileno())

    try:
        order = wire.Order(
            argv=sys.argv,
            cwd=os.getcwd(),  # noqa: PTH109 (pathlib takes longer to import than all of this)
            umask=_umask(),
            environment=dict(os.environ),
            processors=sorted(os.sched_getaffinity(0)),
            blocked_signals=sorted(map(int, before)),
            ignored_signals=ignored,
        )
        wire.send(connection, order, descriptors=(0, 1, 2))
        for number in _PASSED_ON:
            if number not in ignored:
                signal.signal(number, _leave_to_the_wait)
        # Not earlier: a signal's byte would come before the order.
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        while connection not in select.select([connection, arrived], [], [])[0]:
            with suppress(OSError):  # the worker has ended; how, is about to be read
                connection.sendall(arrived.recv(64))
        status = wire.receive_status(connection)
    except (OSError, EOFError):
        sys.stderr.write("steadfast: the standby process is gone, and this worker with it\n")
        os._exit(1)
    signal.set_wakeup_fd(-1)
    arrived.close()
    written.close()
    if status == wire.REFUSED:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return status


def _leave_to_the_wait(_number: int, _frame: FrameType | None) -> None:
    """In place of a handler that would end this process."""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        # The worker has dumped its core, if it may; ours would be of this process.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        from trainer import exit_codes

        # The launcher would take it for success, and wait minutes for the other nodes' ends.
        code = int(exit_codes.is_end_in_mid_run(code))
    os._exit(code)
