"""Pods as their ranks see them: a memory folder with snapshots in it, and a real courier."""

import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer.peers import wire
from trainer.peers.notes import Address, Awaited
from trainer.peers.peering import Peers, SendState
from trainer.peers.pod import CourierKeeper
from trainer.snapshots.buffer import found_in
from trainer.snapshots.header import PAGE_BYTES, Header, SnapshotKey, pack
from trainer.snapshots.offers import Key

IDENTITY = b"this run, so big"
SECONDS = 20.0


@dataclass(frozen=True)
class Pod:
    folder: Path
    keeper: CourierKeeper

    @property
    def address(self) -> Address:
        return Address.read(self.folder)

    def await_shards(
        self, coordinates: Iterable[int], *, limit_bytes: int = 1 << 30, attempt: int = 1
    ) -> None:
        Awaited(attempt, frozenset(coordinates), limit_bytes).write(self.folder)

    def found(self) -> dict[str, Key]:
        """What a rank of this pod would offer: attempt and step by file."""
        return {
            path.name: (header.key.attempt, header.key.step)
            for path, header in found_in(self.folder)
        }

    def kill_courier(self) -> None:
        """Returns once it is dead."""
        (pid,) = self.keeper.pids
        end = os.pidfd_open(pid)
        os.kill(pid, 9)
        assert select.select([end], [], [], SECONDS)[0]
        os.close(end)


@contextmanager
def courier(folder: Path, *, bytes_per_second: int = 0) -> Iterator[Pod]:
    with closing(CourierKeeper(bytes_per_second=bytes_per_second)) as keeper:
        keeper.open(folder, run="run", host="127.0.0.1")
        yield Pod(folder, keeper)


def header(coordinate: int, step: int, *, size: int, attempt: int = 1, sequence: int = 2) -> Header:
    return Header(sequence, SnapshotKey(coordinate, attempt, step, 8, IDENTITY), size, 1.5)


def snapshot(folder: Path, header: Header) -> str:
    """A rank's file with this header and noise; its name."""
    name = f"rank-{header.key.coordinate}-0"
    page = pack(header).ljust(PAGE_BYTES, b"\0")
    (folder / name).write_bytes(page + os.urandom(header.payload_bytes))
    return name


def send(sender: Pod, to: Pod, sent: Header, *, keep: Key | None = None) -> tuple[SendState, str]:
    """Have a new file with this header sent; how that ended, and the words if badly."""
    file = snapshot(sender.folder, sent)
    with closing(Peers(sender.folder, to.address)) as peers:
        peers.begin(file, sent, keep=keep)
        return ended(peers), peers.failure


def ended(peers: Peers) -> SendState:
    deadline = time.monotonic() + SECONDS
    while peers.poll() is SendState.SENDING:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return peers.state


def stranger(to: Pod) -> socket.socket:
    return socket.create_connection(("127.0.0.1", to.address.port), SECONDS)


def announcement(to: Pod, sent: Header, **changes: object) -> wire.Message:
    """What a courier says first."""
    known = {"token": to.address.token, "run": "run", "header": pack(sent).hex(), "keep": None}
    return {**known, **changes}


def answer(connection: socket.socket) -> wire.Message:
    return wire.receive(connection, within=SECONDS)
