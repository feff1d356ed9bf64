"""The standby process: forks a worker for each order, and looks after it until it ends.

One thread, one ``poll``, no signal handlers: what a fork inherits must be what a fresh
process has. A worker whose launcher process is gone is killed with all of its process
group, as launchers kill a worker that they started themselves. Until it is gone for good,
with its memory on the GPU, nobody is forked: a launcher, too, would have waited for it.

Not covered: a standby that is stopped (SIGSTOP) between its greeting and an order; the
launcher's own limit for workers that never report is left to notice that.
"""

import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from trainer.parent_death import die_with
from trainer.standby import wire

ORDER_SECONDS = 5.0
_BACKLOG = 64
"""Workers of one node that may ask at the same moment."""


@dataclass(frozen=True, slots=True)
class Forked:
    """What a new worker still has to become."""

    order: wire.Order
    descriptors: list[int]


@dataclass(slots=True)
class _Worker:
    pid: int
    exit: int
    """A descriptor that becomes readable when it ends."""

    connection: socket.socket | None
    """To the launcher's process; None once that is gone."""


class Standby:
    """``why_not`` is asked before each fork; while it gives a reason, workers start plainly."""

    def __init__(self, address: str, why_not: Callable[[], str | None]) -> None:
        self._why_not = why_not
        self._complaints: set[str] = set()
        self._greeted: dict[int, socket.socket] = {}
        self._ordered: list[tuple[socket.socket, Forked]] = []
        """Not polled meanwhile; what comes next on their connections is for the worker."""

        self._by_connection: dict[int, _Worker] = {}
        self._by_exit: dict[int, _Worker] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(_BACKLOG)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)

    def serve(self) -> Forked:
        """Returns in each forked worker, in a session of its own, and never in the standby."""
        while True:
            for descriptor, _ in self._poll.poll():
                self._attend_to(descriptor)
            while self._ordered and all(w.connection for w in self._by_exit.values()):
                connection, forked = self._ordered.pop(0)
                if self._fork(connection, forked):
                    return forked

    def _attend_to(self, descriptor: int) -> None:
        """A descriptor that is none of these was closed on behalf of another of the same poll."""
        if descriptor == self._listener.fileno():
            self._greet()
        elif descriptor in self._greeted:
            self._take_order(self._greeted.pop(descriptor))
        elif descriptor in self._by_connection:
            self._hear(self._by_connection[descriptor])
        elif descriptor in self._by_exit:
            self._bury(self._by_exit.pop(descriptor))

    def _greet(self) -> None:
        connection, _ = self._listener.accept()
        if reason := self._why_not():
            if reason not in self._complaints:
                self._complaints.add(reason)
                sys.stderr.write(f"steadfast: workers are not forked: {reason}\n")
            connection.close()
            return
        connection.settimeout(ORDER_SECONDS)
        try:
            wire.send(connection, wire.read_at_import(os.environ))
        except OSError:
            connection.close()
            return
        self._greeted[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _take_order(self, connection: socket.socket) -> None:
        self._poll.unregister(connection)
        try:
            message, descriptors = wire.receive(connection, num_descriptors=3)
        except (OSError, EOFError, ValueError):  # it trains by itself, or was killed
            connection.close()
            return
        connection.settimeout(None)
        self._ordered.append((connection, Forked(wire.Order(*message), descriptors)))

    def _fork(self, connection: socket.socket, forked: Forked) -> bool:
        """True in the new worker."""
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write(f"steadfast: a worker cannot be forked ({error.strerror})\n")
            with suppress(OSError):
                wire.send_status(connection, wire.REFUSED)
            connection.close()
            _close_all(forked.descriptors)
            return False
        if pid == 0:
            os.setsid()
            die_with(parent)
            connection.close()
            self._let_go()
            return True
        _close_all(forked.descriptors)
        worker = _Worker(pid, os.pidfd_open(pid), connection)
        self._by_connection[connection.fileno()] = worker
        self._by_exit[worker.exit] = worker
        self._poll.register(connection, select.POLLIN)
        self._poll.register(worker.exit, select.POLLIN)
        return False

    def _hear(self, worker: _Worker) -> None:
        """Pass signals on; an end of the connection is the launcher's SIGKILL."""
        assert worker.connection is not None
        try:
            numbers = worker.connection.recv(64)
        except OSError:
            numbers = b""
        with suppress(ProcessLookupError):
            for number in numbers:
                signal.pidfd_send_signal(worker.exit, number)
        if not numbers:
            del self._by_connection[worker.connection.fileno()]
            self._close(worker.connection)
            worker.connection = None
            kill_group(worker.pid)

    def _bury(self, worker: _Worker) -> None:
        self._poll.unregister(worker.exit)
        os.close(worker.exit)
        _, status = os.waitpid(worker.pid, 0)
        if worker.connection is not None:
            with suppress(OSError):  # killed in the same moment
                wire.send_status(worker.connection, status)
            del self._by_connection[worker.connection.fileno()]
            self._close(worker.connection)

    def _close(self, connection: socket.socket) -> None:
        self._poll.unregister(connection)
        connection.close()

    def _let_go(self) -> None:
        """In a worker: the standby's ends of other workers' connections are not ours to hold."""
        self._listener.close()
        for connection in self._greeted.values():
            connection.close()
        for connection, other in self._ordered:
            connection.close()
            _close_all(other.descriptors)
        for worker in self._by_exit.values():
            os.close(worker.exit)
            if worker.connection is not None:
                worker.connection.close()


def kill_group(pid: int) -> None:
    """SIGKILL a child that was not waited for yet, so that nobody else can have its pid."""
    # Both: it may not have made its session, and so its group, yet.
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
