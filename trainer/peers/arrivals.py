"""Takes in the shards of other pods' ranks, each into the one of its two files that is not kept.

A file is reserved before it is written to, and its header's sequence number is odd until all
bytes are there and right: whoever dies in between leaves a file that nobody offers.

Not covered: memory that the pod's limit does not hold. The ranks await no more than fits.
"""

import mmap
import os
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from trainer.peers import wire
from trainer.peers.notes import Awaited
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, pack, unpack
from trainer.snapshots.offers import PEER_PREFIX, Key

NUM_FILES = 2
"""Of a coordinate: one is kept whole while the other is filled."""

STALL_SECONDS = 30.0
_RESERVED_BYTES = 64 << 20
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """What another courier announces."""

    header: Header
    """As in the file that it sends."""

    keep: Key | None

    @classmethod
    def read(cls, message: wire.Message) -> Self:
        """Raises ``wire.Malformed``."""
        try:
            header = unpack(bytes.fromhex(wire.text(message, "header")))
        except ValueError:
            header = None
        if header is None or not header.is_whole:
            raise wire.Malformed("header is none of a whole snapshot")
        return cls(header, wire.key(message, "keep"))

    @property
    def size_bytes(self) -> int:
        return PAGE_BYTES + self.header.payload_bytes


class Arrivals:
    """The files with others' shards in one pod's folder. Any thread may call ``receive``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._arriving: set[int] = set()

    def receive(self, arrival: Arrival, connection: socket.socket) -> None:
        """Answer what is announced, take it in, and return once it is whole.

        Raises:
            wire.Refused: it is not taken, or is not what was sent.
            OSError, EOFError, wire.Malformed: the other side is gone, or makes no sense.
        """
        with self._place(arrival) as (descriptor, odd):
            wire.send(connection, {"ready": 1}, within=STALL_SECONDS)
            with mmap.mmap(descriptor, arrival.size_bytes) as mapping:
                checksum = _fill(mapping, connection)
            last = wire.receive(connection, within=STALL_SECONDS)
            if not wire.number(last, "whole"):
                raise wire.Refused("the snapshot was filled anew while it was sent")
            if wire.number(last, "checksum") != checksum:
                raise wire.Refused("what arrived is not what was sent")
            whole = replace(arrival.header, sequence=odd + 1)
            os.pwrite(descriptor, pack(whole), 0)

    @contextmanager
    def _place(self, arrival: Arrival) -> Iterator[tuple[int, int]]:
        """A file of the right size to write into, and the odd number that it has until then."""
        coordinate = arrival.header.key.coordinate
        with self._lock:
            path = self._choose(arrival)
            self._arriving.add(coordinate)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = unpack(os.pread(descriptor, HEADER_BYTES, 0))
                odd = _next_odd(found.sequence if found else 0)
                os.pwrite(descriptor, pack(replace(arrival.header, sequence=odd)), 0)
                _reserve(descriptor, arrival.size_bytes, path)
                yield descriptor, odd
            finally:
                os.close(descriptor)
        finally:
            with self._lock:
                self._arriving.discard(coordinate)

    def _choose(self, arrival: Arrival) -> Path:
        awaited = Awaited.read(self._folder)
        key = arrival.header.key
        if awaited is None or key.coordinate not in awaited.coordinates:
            raise wire.Refused(f"no shard of coordinate {key.coordinate} is awaited here")
        if key.attempt < awaited.attempt:
            raise wire.Refused(f"attempt {key.attempt} is over, attempt {awaited.attempt} runs")
        if key.coordinate in self._arriving:
            raise wire.Refused(f"a shard of coordinate {key.coordinate} is arriving already")
        files = [self._folder / f"{PEER_PREFIX}{key.coordinate}-{n}" for n in range(NUM_FILES)]
        path = min(files, key=lambda file: _worth(_header_of(file), arrival.keep))
        self._make_room(path, arrival, awaited)
        _make(path, arrival.size_bytes)
        return path

    def _make_room(self, path: Path, arrival: Arrival, awaited: Awaited) -> None:
        """Remove what ranks sent here that send elsewhere now, once it is old or in the way."""
        files = [each for each in self._folder.glob(f"{PEER_PREFIX}*-?") if each != path]
        strays = [each for each in files if _coordinate_of(each) not in awaited.coordinates]
        for each in strays:
            header = _header_of(each)
            is_old = header is None or _worth(header, arrival.keep) < (0, 1, arrival.keep or (0, 0))
            if is_old:
                each.unlink()
        if self._fits(files, arrival, awaited):
            return
        for each in strays:
            each.unlink(missing_ok=True)
        if not self._fits(files, arrival, awaited):
            limit = awaited.limit_bytes
            raise wire.Refused(f"no room: others' shards may take {limit} bytes on this node")

    def _fits(self, others: list[Path], arrival: Arrival, awaited: Awaited) -> bool:
        taken = sum(each.stat().st_size for each in others if each.exists())
        return taken + arrival.size_bytes <= awaited.limit_bytes


def _worth(header: Header | None, keep: Key | None) -> tuple[int, int, Key]:
    """The file whose worth is least is overwritten: what is torn, else what is older."""
    if header is None or not header.is_whole:
        return 0, 0, (0, 0)
    key = header.key.attempt, header.key.step
    return int(key == keep), 1, key


def _header_of(file: Path) -> Header | None:
    try:
        with file.open("rb") as opened:
            return unpack(opened.read(HEADER_BYTES))
    except FileNotFoundError:
        return None


def _coordinate_of(file: Path) -> int | None:
    number = file.name.removeprefix(PEER_PREFIX).rpartition("-")[0]
    return int(number) if number.isdecimal() else None


def _make(path: Path, size_bytes: int) -> None:
    """Make a file of this size, or leave the one that is there."""
    if path.exists():
        if path.stat().st_size == size_bytes:
            return
        path.unlink()  # not cut to size: a rank that maps it would be killed at its next touch
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size_bytes: int, path: Path) -> None:
    """All pages, by a call that fails: a touch of one that a full file system lacks kills."""
    for offset in range(0, size_bytes, _RESERVED_BYTES):
        try:
            os.posix_fallocate(descriptor, offset, min(_RESERVED_BYTES, size_bytes - offset))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise wire.Refused(f"no room: {path.parent} ({error.strerror})") from error


def _next_odd(sequence: int) -> int:
    return sequence + (2 if sequence % 2 else 1)


def _fill(mapping: mmap.mmap, connection: socket.socket) -> int:
    """The checksum of what arrived behind the header's page."""
    checksum, offset, end = 0, PAGE_BYTES, len(mapping)
    connection.settimeout(STALL_SECONDS)
    with memoryview(mapping) as view:
        while offset < end:
            with view[offset : offset + _PIECE_BYTES] as piece:
                count = connection.recv_into(piece)
                if count == 0:
                    raise EOFError("the sender is gone")
                checksum = zlib.crc32(piece[:count], checksum)
            offset += count
    return checksum
