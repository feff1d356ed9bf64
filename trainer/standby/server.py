"""The standby process: forks a worker for each order, and looks after it until it ends.

One thread, one ``poll``, no signal handlers: what a fork inherits must be what a fresh
process has. A worker whose launcher process is gone is killed with all of its process
group, as launchers kill a worker that they started themselves.

Not covered: a standby that is stopped (SIGSTOP) between its greeting and an order; the
launcher's own limit for workers that never report is left to notice that.
"""

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from trainer.standby import wire
from trainer.standby.process import die_with

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
                if forked := self._attend_to(descriptor):
                    return forked

    def _attend_to(self, descriptor: int) -> Forked | None:
        if descriptor == self._listener.fileno():
            self._greet()
        elif descriptor in self._greeted:
            return self._take_order(self._greeted.pop(descriptor))
        elif descriptor in self._by_connection:
            self._hear(self._by_connection[descriptor])
        elif descriptor in self._by_exit:
            self._bury(self._by_exit.pop(descriptor))
        return None  # or what an earlier one of the same poll has closed

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

    def _take_order(self, connection: socket.socket) -> Forked | None:
        try:
            message, descriptors = wire.receive(connection, num_descriptors=3)
        except (OSError, EOFError, ValueError):  # it trains by itself, or was killed
            self._close(connection)
            return None
        connection.settimeout(None)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write(f"steadfast: a worker cannot be forked ({error.strerror})\n")
            with suppress(OSError):
                wire.send_status(connection, wire.REFUSED)
            self._close(connection)
            pid = -1
        if pid == 0:
            os.setsid()
            die_with(parent)
            connection.close()
            self._close_all()
            return Forked(wire.Order(*message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            worker = _Worker(pid, os.pidfd_open(pid), connection)
            self._by_connection[connection.fileno()] = worker
            self._by_exit[worker.exit] = worker
            self._poll.register(worker.exit, select.POLLIN)
        return None

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
            # Both: it may not have made its session, and so its group, yet. It is not waited
            # for before its exit is seen, so that nobody else can have got its pid.
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker.exit, signal.SIGKILL)

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

    def _close_all(self) -> None:
        """In a worker: the standby's ends of other workers' connections are not ours to hold."""
        self._listener.close()
        for connection in self._greeted.values():
            connection.close()
        for worker in self._by_exit.values():
            os.close(worker.exit)
            if worker.connection is not None:
                worker.connection.close()
