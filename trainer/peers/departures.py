"""Sends the snapshot of one of this pod's ranks to the courier of another pod.

``sendfile`` hands the file's pages to the network without a copy, so bytes that are written
to the file meanwhile go over too. Two things show it: the header's sequence number, which
is read again after the last byte, and a CRC-32 of what this side then had in memory, which
the other side compares with what arrived. CRC-32 runs at some 6 GB/s a core here.

Not covered: a rank that fills a buffer without holding it, beyond that its copy is dropped.
"""

import mmap
import os
import socket
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainer.peers import wire
from trainer.peers.notes import Address
from trainer.peers.throttle import Throttle
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, pack, unpack
from trainer.snapshots.offers import Key

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""The other side reserves memory before it takes the first byte."""

STALL_SECONDS = 30.0
"""Without a byte sent, or taken."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What a rank orders to be sent."""

    file: str
    """By name, in the pod's memory folder."""

    attempt: int
    step: int
    sequence: int
    """What the file holds, and will hold until it is sent."""

    keep: Key | None
    """The newest state that all ranks have sent; the other side does not overwrite it."""

    to: Address

    @classmethod
    def read(cls, message: wire.Message) -> Self:
        """Raises ``wire.Malformed``."""
        file = wire.text(message, "file")
        if not file or file.startswith(".") or "/" in file or "\0" in file:
            raise wire.Malformed(f"{file!r:.80} is no name of a file in the pod's folder")
        return cls(
            file=file,
            attempt=wire.number(message, "attempt"),
            step=wire.number(message, "step"),
            sequence=wire.number(message, "sequence"),
            keep=wire.key(message, "keep"),
            to=Address(
                host=wire.text(message, "host"),
                port=wire.number(message, "port"),
                token=wire.text(message, "token"),
                run=wire.text(message, "run"),
            ),
        )

    def message(self) -> wire.Message:
        return {
            "file": self.file,
            "attempt": self.attempt,
            "step": self.step,
            "sequence": self.sequence,
            "keep": self.keep,
            "host": self.to.host,
            "port": self.to.port,
            "token": self.to.token,
            "run": self.to.run,
        }


class Departures:
    """The sends of one pod."""

    def __init__(self, folder: Path, throttle: Throttle) -> None:
        self._folder = folder
        self._throttle = throttle

    def send(self, order: Departure, is_wanted: Callable[[], bool]) -> None:
        """Returns once the other side has it whole. ``is_wanted`` is asked before each piece.

        Raises:
            wire.Refused: it is not sent, or not taken, or was torn.
            OSError, EOFError, wire.Malformed: the other side is gone, or makes no sense.
        """
        try:
            source = os.open(self._folder / order.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise wire.Refused(f"{order.file} cannot be read ({error.strerror})") from error
        with os.fdopen(source, "rb", buffering=0) as file:
            header = _header(source)
            if header is None or not _is_meant(header, order):
                raise wire.Refused(f"{order.file} was filled anew before it was sent")
            end = PAGE_BYTES + header.payload_bytes
            if os.fstat(source).st_size != end:
                raise wire.Refused(f"{order.file} has not the size that its header says")
            with (
                socket.create_connection((order.to.host, order.to.port), CONNECT_SECONDS) as peer,
                mmap.mmap(source, end, prot=mmap.PROT_READ) as mapping,
            ):
                wire.send(peer, _announcement(order, header), within=STALL_SECONDS)
                _answer(peer)
                checksum, offset = 0, PAGE_BYTES
                peer.settimeout(STALL_SECONDS)
                while offset < end:
                    piece = min(self._throttle.piece_bytes, end - offset)
                    time.sleep(self._throttle.delay(piece, time.monotonic()))
                    if not is_wanted():
                        raise wire.Refused(f"nobody wants {order.file} to be sent any more")
                    peer.sendfile(file, offset=offset, count=piece)
                    with memoryview(mapping) as view:
                        checksum = zlib.crc32(view[offset : offset + piece], checksum)
                    offset += piece
                is_whole = _header(source) == header
                last = {"checksum": checksum, "whole": int(is_whole)}
                wire.send(peer, last, within=STALL_SECONDS)
                _answer(peer)


def _header(descriptor: int) -> Header | None:
    return unpack(os.pread(descriptor, HEADER_BYTES, 0))


def _is_meant(header: Header, order: Departure) -> bool:
    key = header.key
    found = (header.is_whole, key.attempt, key.step, header.sequence)
    return found == (True, order.attempt, order.step, order.sequence)


def _announcement(order: Departure, header: Header) -> wire.Message:
    return {
        "token": order.to.token,
        "run": order.to.run,
        "header": pack(header).hex(),
        "keep": order.keep,
    }


def _answer(peer: socket.socket) -> None:
    answer = wire.receive(peer, within=ANSWER_SECONDS)
    if "refused" in answer:
        raise wire.Refused(wire.text(answer, "refused"))
