"""A rank's side of the peer tier: who receives its snapshot, and the orders to its pod's courier.

The rank itself sends nothing and never waits: it writes an order into a socket, goes on
training, and looks for the answer when it likes. The buffer that it orders to be sent is not
to be filled until then.

Not covered: when a generation is complete, which the ranks agree on (``generations``).
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from trainer.peers import wire
from trainer.peers.arrivals import NUM_FILES
from trainer.peers.departures import Departure
from trainer.peers.notes import Address, Awaited, orders_path
from trainer.peers.ring import received_on, ring
from trainer.snapshots.header import Header
from trainer.snapshots.offers import Key

_CONNECT_SECONDS = 1.0
"""The courier of the same pod accepts at once, or not at all."""


class SendState(StrEnum):
    IDLE = "idle"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank tells the others at the start of an attempt."""

    node: str
    file_bytes: int
    """Of its snapshot's file."""

    address: Address | None
    """Of its pod's courier, if there is one."""

    @classmethod
    def of(cls, folder: Path | None, *, node: str, file_bytes: int) -> Self:
        address = None
        if folder is not None:
            try:
                address = Address.read(folder)
            except OSError:
                address = None  # PID 1 has said why
        return cls(node, file_bytes, address)


@dataclass(frozen=True, slots=True)
class Peering:
    """Who sends to whom in an attempt; the same for all ranks."""

    places: Sequence[Place]
    """By rank."""

    @property
    def reason(self) -> str:
        """Why nothing is sent; empty where all can."""
        without = [rank for rank, place in enumerate(self.places) if place.address is None]
        if not self.has_several_nodes:
            return "all ranks are on one node"
        if without:
            return f"the pod of rank {without[0]} has no courier"
        return ""

    @property
    def has_several_nodes(self) -> bool:
        return len({place.node for place in self.places}) > 1

    def receiver(self, rank: int) -> Address:
        """Of the pod that receives the shard of ``rank``; only where there is no ``reason``."""
        address = self.places[ring([place.node for place in self.places])[rank]].address
        assert address is not None
        return address

    def received_bytes(self, node: str) -> int:
        """What the files of others' shards take on ``node``."""
        return NUM_FILES * sum(self.places[rank].file_bytes for rank in self._received_on(node))

    def awaited(self, node: str, attempt: int) -> Awaited:
        """What the courier of ``node`` is to be told."""
        coordinates = frozenset(self._received_on(node))
        return Awaited(attempt, coordinates, self.received_bytes(node))

    def _received_on(self, node: str) -> tuple[int, ...]:
        return received_on(node, [place.node for place in self.places])


class Peers:
    """The orders of one rank in one attempt. Nothing here raises, or waits for the network."""

    def __init__(self, folder: Path, receiver: Address) -> None:
        self._folder = folder
        self._receiver = receiver
        self._connection: socket.socket | None = None
        self._received = bytearray()
        self.state = SendState.IDLE
        self.failure = ""
        """Why the last send failed, in words."""

    def begin(self, file: str, header: Header, *, keep: Key | None) -> None:
        """Have ``file`` sent, whose header is ``header`` and stays so.

        Args:
            keep: The newest generation that is complete, if any: its copies are not overwritten.
        """
        assert self.state is not SendState.SENDING
        order = Departure(
            file=file,
            attempt=header.key.attempt,
            step=header.key.step,
            sequence=header.sequence,
            keep=keep,
            to=self._receiver,
        )
        self.state, self.failure = SendState.SENDING, ""
        try:
            if self._connection is None:
                self._connection = _connected(self._folder)
            self._connection.sendall(wire.pack(order.message()))
        except OSError as error:
            self._fail(f"this pod's courier cannot be reached ({error.strerror or error})")

    def poll(self) -> SendState:
        """How the last order fares."""
        if self.state is not SendState.SENDING:
            return self.state
        assert self._connection is not None
        try:
            part = self._connection.recv(wire.LONGEST_BYTES)
            self._received += part
            answer = wire.take(self._received)
        except BlockingIOError:
            return self.state
        except (OSError, wire.Malformed) as error:
            self._fail(f"this pod's courier is gone ({error})")
            return self.state
        if answer is None and not part:
            self._fail("this pod's courier is gone")
        elif answer is not None and "refused" in answer:
            self.state, self.failure = SendState.FAILED, str(answer["refused"])
        elif answer is not None:
            self.state = SendState.SENT
        return self.state

    def close(self) -> None:
        """A send that is under way is given up; nobody will take its file for a snapshot."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._received.clear()
        self.state = SendState.IDLE

    def _fail(self, words: str) -> None:
        self.close()
        self.state, self.failure = SendState.FAILED, words


def _connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        with orders_path(folder) as path:
            connection.connect(path)
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection
