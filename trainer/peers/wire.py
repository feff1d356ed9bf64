"""What ranks and couriers say to each other: a length, then one JSON object.

Over TCP whoever connects is a stranger until its token is seen, so a message is bounded in
size and in time, and each field is looked at before it is used.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

Message: TypeAlias = Mapping[str, Any]

LONGEST_BYTES = 16 << 10
_LENGTH = struct.Struct("=I")


class Malformed(ValueError):
    """What came is no such message; in words."""


class Refused(Exception):
    """A shard is not taken, or not sent; in words for the log of the rank that asked."""


def pack(message: Message) -> bytes:
    content = json.dumps(message).encode("ascii")
    assert len(content) <= LONGEST_BYTES
    return _LENGTH.pack(len(content)) + content


def take(received: bytearray) -> Message | None:
    """Remove the first message from ``received``; None while it is not there as a whole.

    Raises:
        Malformed: it never will be.
    """
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    if length > LONGEST_BYTES:
        raise Malformed(f"a message of {length} bytes; at most {LONGEST_BYTES} are taken")
    end = _LENGTH.size + length
    if len(received) < end:
        return None
    content = bytes(received[_LENGTH.size : end])
    del received[:end]
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise Malformed("a message that is no JSON object")
    return message


def send(connection: socket.socket, message: Message, *, within: float) -> None:
    """Raises ``OSError``, ``TimeoutError`` after ``within`` seconds without progress."""
    connection.settimeout(within)
    connection.sendall(pack(message))


def receive(connection: socket.socket, *, within: float | None) -> Message:
    """The next message; None waits for as long as the other side is there.

    Raises:
        EOFError: it is not any more.
        TimeoutError: the message was not whole after so many seconds.
        Malformed: it is none.
    """
    deadline = None if within is None else time.monotonic() + within
    received = bytearray()
    while (message := take(received)) is None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        # No byte more than this message: what comes behind it may be a shard's.
        part = connection.recv(_missing(received))
        if not part:
            raise EOFError("the connection was closed")
        received += part
    return message


def number(message: Message, name: str) -> int:
    """Raises ``Malformed`` unless it is a whole number from 0 on that fits into 64 bits."""
    value = message.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise Malformed(f"{name} is {value!r:.80}, no whole number")
    return value


def text(message: Message, name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise Malformed(f"{name} is {value!r:.80}, no text")
    return value


def key(message: Message, name: str) -> tuple[int, int] | None:
    """Attempt and step of a state; None for none."""
    value = message.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed(f"{name} is {value!r:.80}, no attempt and step")
    pair = {"attempt": value[0], "step": value[1]}
    return number(pair, "attempt"), number(pair, "step")


def _missing(received: bytearray) -> int:
    if len(received) < _LENGTH.size:
        return _LENGTH.size - len(received)
    (length,) = _LENGTH.unpack_from(received)
    return _LENGTH.size + int(length) - len(received)
