"""Ranks agree on who sends to whom and on when a generation counts; a restore finds the copy."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from tests.trainer.peers.pods import IDENTITY, Pod, ended
from trainer.distributed import Job
from trainer.peers.generations import Generations, PeerVotes, Turn
from trainer.peers.notes import Address, Awaited
from trainer.peers.peering import Peering, Peers, Place, SendState
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.header import SnapshotKey
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Durable, Source
from trainer.snapshots.restore import MemoryRestorer

A, B = (Address(host, 1, "token", "run") for host in ("10.0.0.1", "10.0.0.2"))
PLACES = (Place("a", 100, A), Place("a", 110, A), Place("b", 120, B), Place("b", 130, B))


def test_each_pod_awaits_two_files_of_each_shard_that_comes_to_it() -> None:
    peering = Peering(PLACES)
    assert peering.reason == ""
    assert [peering.receiver(rank) for rank in range(4)] == [B, B, A, A]
    assert peering.awaited("a", 5) == Awaited(5, frozenset({2, 3}), 500)


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        (PLACES[:2], "all ranks are on one node"),
        ((*PLACES, Place("c", 1, None)), "the pod of rank 4 has no courier"),
    ],
)
def test_why_nothing_is_sent_is_said(places: tuple[Place, ...], reason: str) -> None:
    assert Peering(places).reason == reason


def test_a_pod_without_a_courier_says_so(tmp_path: Path) -> None:
    assert Place.of(tmp_path, node="a", file_bytes=1).address is None
    assert Place.of(None, node="a", file_bytes=1).address is None


def test_what_is_restored_from_a_copy_is_what_was_sent(
    two_pods: tuple[Pod, Pod], mesh: DeviceMesh
) -> None:
    sender, receiver = two_pods
    values = [torch.rand(1000), torch.arange(9)]
    buffer = SnapshotBuffer.open(sender.folder, "rank-0-0", values, torch.device("cpu"))
    buffer.get_ready()
    buffer.wait(20)
    buffer.begin(SnapshotKey(0, 1, 7, 1, IDENTITY))
    for place, tensor in zip(buffer.tensors, values, strict=True):
        place.copy_(tensor)
    buffer.finish(0.5)
    header = buffer.header()
    assert header is not None
    with closing(Peers(sender.folder, receiver.address)) as peers:
        peers.begin(buffer.path.name, header, keep=None)
        assert ended(peers) is SendState.SENT
    restorer = MemoryRestorer(
        job=Job(0, 1, torch.device("cpu"), mesh),
        node="b",
        folder=receiver.folder,
        identity=IDENTITY,
        live=Live(),
    )
    tensors = [torch.zeros(1000), torch.zeros(9, dtype=torch.int64)]
    restored = restorer.restore(tensors, Durable())
    assert restored is not None
    assert (restored.source, restored.step, restored.probe.loss) == (Source.PEER, 7, 0.5)
    assert all(map(torch.equal, tensors, values))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def generations(clock: Clock, rank: int = 0) -> Generations:
    return Generations(rank=rank, world_size=2, interval_seconds=60, keep=(1, 3), clock=clock)


def test_a_generation_is_complete_once_all_have_sent_it() -> None:
    clock = Clock()
    this = generations(clock)
    due = this.votes(SendState.IDLE)
    assert due == PeerVotes(due=1)
    assert this.agreed(due, None) is Turn.NOTHING
    assert this.agreed(due, (1, 5)) is Turn.BEGIN
    assert this.votes(SendState.SENDING) == PeerVotes()
    assert this.agreed(PeerVotes(sent=1), (1, 6)) is Turn.NOTHING
    assert this.keep == (1, 3)
    assert this.agreed(PeerVotes(sent=2), None) is Turn.COMPLETE
    assert this.keep == (1, 5)
    assert this.votes(SendState.SENT) == PeerVotes()
    clock.now += 60
    assert this.votes(SendState.SENT) == PeerVotes(due=1)


def test_a_generation_that_one_rank_cannot_send_is_given_up_when_all_have_ended() -> None:
    this = generations(Clock())
    this.agreed(PeerVotes(due=1), (1, 5))
    assert this.votes(SendState.FAILED) == PeerVotes(failed=1)
    assert this.agreed(PeerVotes(failed=1), None) is Turn.NOTHING
    assert this.agreed(PeerVotes(sent=1, failed=1), None) is Turn.GIVE_UP
    assert this.keep == (1, 3)


def test_rank_0_alone_says_when_it_is_time() -> None:
    assert generations(Clock(), rank=1).votes(SendState.IDLE) == PeerVotes()
