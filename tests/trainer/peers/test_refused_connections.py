"""Whoever does not say the right things to a courier is refused in one line, and sent away."""

import struct
from typing import Any

import pytest

from tests.trainer.peers.pods import Pod, announcement, answer, header, stranger
from trainer.peers import wire
from trainer.peers.departures import Departure
from trainer.snapshots.header import pack

Pods = tuple[Pod, Pod]
SENT = header(0, 7, size=100)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": "guessed"}, "not this pod's token"),
        ({"token": None}, "token is None, no text"),
        ({"run": "another"}, "this is run 'run', not 'another'"),
        ({"header": "00"}, "header is none of a whole snapshot"),
        ({"header": "no hex"}, "header is none of a whole snapshot"),
        (
            {"header": pack(header(0, 7, size=100, sequence=3)).hex()},
            "header is none of a whole snapshot",
        ),
        ({"keep": [1]}, "keep is [1], no attempt and step"),
        ({"header": pack(header(9, 7, size=1)).hex()}, "no shard of coordinate 9 is awaited here"),
        ({"header": pack(header(0, 7, size=1, attempt=0)).hex()}, "attempt 0 is over, "),
    ],
)
def test_what_is_wrong_is_refused_in_words(
    changes: dict[str, Any], words: str, two_pods: Pods, capfd: pytest.CaptureFixture[str]
) -> None:
    _, receiver = two_pods
    with stranger(receiver) as peer:
        wire.send(peer, announcement(receiver, SENT, **changes), within=5)
        assert answer(peer)["refused"].startswith(words)
        assert peer.recv(1) == b""
    assert receiver.found() == {}
    assert capfd.readouterr().err.count("\n") <= 1


def test_a_message_that_is_too_long_is_refused_before_it_is_read(two_pods: Pods) -> None:
    _, receiver = two_pods
    with stranger(receiver) as peer:
        peer.sendall(struct.pack("=I", 1 << 31))
        assert "a message of 2147483648 bytes" in answer(peer)["refused"]


def test_noise_is_refused(two_pods: Pods) -> None:
    _, receiver = two_pods
    with stranger(receiver) as peer:
        peer.sendall(struct.pack("=I", 4) + b"noise")
        assert answer(peer) == {"refused": "a message that is not JSON"}


def test_a_second_shard_of_one_coordinate_waits_for_the_first(two_pods: Pods) -> None:
    _, receiver = two_pods
    with stranger(receiver) as first, stranger(receiver) as second:
        wire.send(first, announcement(receiver, SENT), within=5)
        assert "ready" in answer(first)
        wire.send(second, announcement(receiver, SENT), within=5)
        assert answer(second) == {"refused": "a shard of coordinate 0 is arriving already"}


@pytest.mark.parametrize("file", ["", "../run", "/etc/passwd", ".awaited", "a\0b"])
def test_no_file_outside_the_folder_is_sent(file: str) -> None:
    order = {"file": file, "attempt": 1, "step": 1, "sequence": 2, "keep": None}
    with pytest.raises(wire.Malformed, match="is no name of a file in the pod's folder"):
        Departure.read(order)


@pytest.mark.parametrize("value", [True, -1, 1.5, "1", None, 1 << 63])
def test_only_whole_numbers_that_fit_are_taken(value: object) -> None:
    with pytest.raises(wire.Malformed, match="step is"):
        wire.number({"step": value}, "step")


def test_a_message_that_arrives_byte_by_byte_is_taken_once_it_is_whole() -> None:
    received = bytearray()
    *first, last = wire.pack({"keep": [1, 2]})
    for byte in first:
        received.append(byte)
        assert wire.take(received) is None
    received += bytes([last]) + b"rest"
    assert wire.take(received) == {"keep": [1, 2]}
    assert received == b"rest"
