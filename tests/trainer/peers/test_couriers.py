"""Real couriers copy a rank's snapshot into another pod's folder, whole or not at all."""

import socket
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.trainer.peers.pods import (
    Pod,
    announcement,
    answer,
    courier,
    ended,
    header,
    send,
    snapshot,
    stranger,
)
from trainer.peers import wire
from trainer.peers.notes import Address
from trainer.peers.peering import Peers, SendState
from trainer.peers.throttle import Throttle
from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, pack, unpack

SIZE = 3 << 20
Pods = tuple[Pod, Pod]


def test_a_copy_has_the_bytes_and_the_header_of_the_snapshot(two_pods: Pods) -> None:
    sender, receiver = two_pods
    sent = header(3, 7, size=SIZE, sequence=10)
    assert send(sender, receiver, sent) == (SendState.SENT, "")
    source, copy = ((sender.folder / "rank-3-0"), (receiver.folder / "peer-3-0"))
    assert copy.read_bytes()[PAGE_BYTES:] == source.read_bytes()[PAGE_BYTES:]
    found = unpack(copy.read_bytes()[:HEADER_BYTES])
    assert found is not None
    assert replace(found, sequence=10) == sent
    assert receiver.found() == {"peer-3-0": (1, 7)}


def test_two_generations_lie_beside_each_other_and_the_one_to_keep_stays(two_pods: Pods) -> None:
    sender, receiver = two_pods
    for step, keep in ((7, None), (8, (1, 7)), (9, (1, 7))):
        assert send(sender, receiver, header(0, step, size=100), keep=keep)[0] is SendState.SENT
    assert receiver.found() == {"peer-0-0": (1, 7), "peer-0-1": (1, 9)}


def test_an_older_generation_that_is_to_be_kept_outlives_a_newer_one(two_pods: Pods) -> None:
    sender, receiver = two_pods
    send(sender, receiver, header(0, 7, size=100))
    send(sender, receiver, header(0, 8, size=100))
    send(sender, receiver, header(0, 6, size=100, attempt=2), keep=(1, 7))
    assert sorted(receiver.found().values()) == [(1, 7), (2, 6)]


def test_a_copy_of_another_size_replaces_the_file(two_pods: Pods) -> None:
    sender, receiver = two_pods
    for step, size in ((1, 100), (2, 100), (3, 5000)):
        assert send(sender, receiver, header(0, step, size=size))[0] is SendState.SENT
    assert sorted(receiver.found().values()) == [(1, 2), (1, 3)]


def test_a_snapshot_that_was_filled_anew_before_it_is_sent_is_not_sent(two_pods: Pods) -> None:
    sender, receiver = two_pods
    file = snapshot(sender.folder, header(0, 7, size=100, sequence=4))
    with closing(Peers(sender.folder, receiver.address)) as peers:
        peers.begin(file, header(0, 7, size=100, sequence=2), keep=None)
        assert ended(peers) is SendState.FAILED
    assert "was filled anew before" in peers.failure


def test_a_snapshot_that_is_filled_anew_while_it_is_sent_is_said_to_be_torn(
    two_pods: Pods,
) -> None:
    sender, _ = two_pods
    sent = header(0, 7, size=64 << 20)  # more than the sockets between them hold
    file = snapshot(sender.folder, sent)
    with socket.create_server(("127.0.0.1", 0)) as server:
        to = Address("127.0.0.1", server.getsockname()[1], "token", "run")
        with closing(Peers(sender.folder, to)) as peers:
            peers.begin(file, sent, keep=None)
            connection, _ = server.accept()
            with connection:
                answer(connection)
                wire.send(connection, {"ready": 1}, within=5)
                with (sender.folder / file).open("r+b") as source:
                    source.write(pack(replace(sent, sequence=3)))
                left = sent.payload_bytes
                while left:
                    left -= len(connection.recv(min(left, 1 << 20)))
                assert answer(connection)["whole"] == 0


def test_a_torn_copy_is_no_snapshot(two_pods: Pods) -> None:
    _, receiver = two_pods
    with stranger(receiver) as peer:
        wire.send(peer, announcement(receiver, header(0, 7, size=5)), within=5)
        assert "ready" in answer(peer)
        peer.sendall(b"bytes")
        wire.send(peer, {"whole": 0, "checksum": 0}, within=5)
        assert "was filled anew while" in answer(peer)["refused"]
    assert receiver.found() == {}


def test_a_copy_that_is_not_what_was_sent_is_no_snapshot(two_pods: Pods) -> None:
    _, receiver = two_pods
    with stranger(receiver) as peer:
        wire.send(peer, announcement(receiver, header(0, 7, size=5)), within=5)
        assert "ready" in answer(peer)
        peer.sendall(b"bytes")
        wire.send(peer, {"whole": 1, "checksum": 0}, within=5)
        assert answer(peer) == {"refused": "what arrived is not what was sent"}
    assert receiver.found() == {}


def test_what_does_not_fit_is_refused_in_words_and_the_rest_stays(two_pods: Pods) -> None:
    sender, receiver = two_pods
    receiver.await_shards([0], limit_bytes=PAGE_BYTES + 100)
    assert send(sender, receiver, header(0, 7, size=100), keep=None)[0] is SendState.SENT
    state, words = send(sender, receiver, header(0, 8, size=100), keep=(1, 7))
    assert (state, words) == (
        SendState.FAILED,
        "no room: others' shards may take 4196 bytes on this node",
    )
    assert receiver.found() == {"peer-0-0": (1, 7)}


def test_shards_of_ranks_that_send_elsewhere_now_give_way(two_pods: Pods) -> None:
    sender, receiver = two_pods
    send(sender, receiver, header(1, 7, size=100))
    receiver.await_shards([0], limit_bytes=2 * (PAGE_BYTES + 100))
    assert send(sender, receiver, header(0, 8, size=100), keep=(1, 7))[0] is SendState.SENT
    assert receiver.found() == {"peer-0-0": (1, 8), "peer-1-0": (1, 7)}
    assert send(sender, receiver, header(0, 9, size=100), keep=(1, 8))[0] is SendState.SENT
    assert receiver.found() == {"peer-0-0": (1, 8), "peer-0-1": (1, 9)}


def test_all_sends_of_a_pod_together_stay_below_its_rate() -> None:
    throttle = Throttle(8 << 20)
    assert (throttle.piece_bytes, throttle.delay(1 << 20, 5.0)) == (1 << 20, 0.0)
    assert throttle.delay(1 << 20, 5.0) == 0.125
    assert throttle.delay(1 << 20, 9.0) == 0.0


def test_a_folder_with_a_long_name_has_a_courier_too() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
        folder = Path(parent, "d" * 150)
        folder.mkdir()
        with courier(folder) as pod:
            pod.await_shards([0])
            assert send(pod, pod, header(0, 7, size=100))[0] is SendState.SENT
