"""A pod's courier: sends its ranks' snapshots to other pods, and takes in theirs.

A process of its own, so that neither the ranks' Python nor their end is in its way. A thread
a connection: they wait for the network, or copy and sum outside Python's lock.

Not covered: who reads along on the network between the pods, as with the shards that the
ranks themselves send.
"""

import hmac
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trainer.launching import say
from trainer.peers import wire
from trainer.peers.arrivals import Arrival, Arrivals
from trainer.peers.departures import Departure, Departures
from trainer.peers.notes import Address
from trainer.peers.throttle import Throttle

MOST_CONNECTIONS = 64
"""Of other pods, and again of ranks."""

GREETING_SECONDS = 5.0
"""For a stranger's first message."""


class Courier:
    def __init__(self, folder: Path, address: Address, bytes_per_second: int) -> None:
        self._address = address
        self._arrivals = Arrivals(folder)
        self._departures = Departures(folder, Throttle(bytes_per_second))

    def serve(self, pods: socket.socket, ranks: socket.socket) -> NoReturn:
        """Serve other pods' couriers, and this pod's ranks, on these listening sockets."""
        doors = {
            pods: _Door(pods, self._take_in),
            ranks: _Door(ranks, self._send_as_ordered),
        }
        while True:
            for ready in select.select(list(doors), [], [])[0]:
                doors[ready].admit()

    def _take_in(self, connection: socket.socket) -> None:
        """One shard of a rank of another pod."""
        try:
            announced = wire.receive(connection, within=GREETING_SECONDS)
            token, run = wire.text(announced, "token"), wire.text(announced, "run")
            if not hmac.compare_digest(token.encode(), self._address.token.encode()):
                raise wire.Malformed("not this pod's token")
            if run != self._address.run:
                raise wire.Malformed(f"this is run {self._address.run!r}, not {run!r:.80}")
            arrival = Arrival.read(announced)
        except wire.Malformed as error:
            say(f"a connection was refused: {error}")
            _refuse(connection, str(error))
            return
        try:
            self._arrivals.receive(arrival, connection)
        except (wire.Refused, wire.Malformed, OSError, EOFError) as error:
            _refuse(connection, str(error))
        else:
            wire.send(connection, {"done": 1}, within=GREETING_SECONDS)

    def _send_as_ordered(self, connection: socket.socket) -> None:
        """What one rank orders, one shard after another, until it is gone."""
        while True:
            ordered = wire.receive(connection, within=None)
            answer: wire.Message = {"done": 1}
            try:
                order = Departure.read(ordered)
                self._departures.send(order, lambda: _is_there(connection))
            except (wire.Refused, wire.Malformed, OSError, EOFError) as error:
                answer = {"refused": str(error)}
            wire.send(connection, answer, within=GREETING_SECONDS)


class _Door:
    """One listening socket, and the threads of those who came in by it."""

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        self._listener = listener
        self._serve = serve
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        listener.setblocking(False)

    def admit(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it has gone again
        if not self._places.acquire(blocking=False):
            with connection:
                _refuse(connection, f"{MOST_CONNECTIONS} connections are open already")
            return
        threading.Thread(target=self._attend_to, args=(connection,), daemon=True).start()

    def _attend_to(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._serve(connection)
        except (OSError, EOFError, wire.Malformed):
            pass  # it is gone, or no rank of this release: the connection is closed
        finally:
            self._places.release()


def _refuse(connection: socket.socket, words: str) -> None:
    try:
        wire.send(connection, {"refused": words}, within=GREETING_SECONDS)
    except OSError:
        return  # then it is closed without


def _is_there(connection: socket.socket) -> bool:
    """Whether the rank that waits for an answer still does; it says nothing meanwhile."""
    return not select.select([connection], [], [], 0)[0]
