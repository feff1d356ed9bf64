"""A lost node costs the steps since the last generation that its peers have, and no more."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.peers.pods import courier, ended
from tests.trainer.ranks import Crew
from tests.trainer.snapshots.attempts import Rank
from trainer.distributed import Job
from trainer.peers.generations import Generations, PeerVotes
from trainer.snapshots.offers import Key
from trainer.snapshots.peer_tier import PeerTier
from trainer.snapshots.pool import Pool

pytestmark = pytest.mark.distributed

MOST_STEPS = 20_000
"""Of a few milliseconds; copies take about as long."""


@pytest.fixture
def nodes() -> Iterator[list[Path]]:
    """The memory of four pods, a courier beside each."""
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))) for _ in range(4)
        ]
        for folder in folders:
            stack.enter_context(courier(folder))
        yield folders


def train(rank: Rank, first: int, *, generations: int = 1) -> Key:
    """Steps until so many more are complete, and a few more steps; the newest of them."""
    keep = None
    for step in range(first, first + MOST_STEPS):
        rank.step(step)
        newest = kept(rank)
        generations -= newest is not None and newest[0] == rank.attempt and newest != keep
        keep = newest
        if generations == 0:
            break
    rank.steps(step + 1, step + 3)
    keep = kept(rank)
    assert keep is not None
    return keep


def is_from_peers(restored: tuple[int, str] | None, generation: Key) -> bool:
    """A newer one may have come to all of them since, and only nobody has said so."""
    assert restored is not None
    return restored[1] == "peer" and restored[0] >= generation[1]


def kept(rank: Rank) -> Key | None:
    return peers_of(rank)._generations.keep


def peers_of(rank: Rank) -> PeerTier:
    attempt = rank.snapshots._attempt
    assert attempt is not None
    assert attempt.peers is not None
    return attempt.peers


def lose_one_node_after_the_other(job: Job, nodes: list[Path]) -> list[Any]:
    """First that of rank 1, then that of rank 0; each is replaced by an empty one."""
    seen: list[Any] = []
    first = Rank(job, nodes[job.rank], peer_interval_seconds=0.001)
    first.restore()
    generation = train(first, 1, generations=2)
    second = Rank(job, [nodes[0], nodes[2]][job.rank], peer_interval_seconds=0.001)
    second.attempt = 1
    restored = second.restore()
    assert restored is not None
    seen += [is_from_peers(restored, generation), second.holds(restored[0])]
    generation = train(second, restored[0] + 1)
    third = Rank(job, [nodes[3], nodes[2]][job.rank], peer_interval_seconds=0.001)
    third.attempt = 2
    restored = third.restore()
    assert restored is not None
    return [*seen, is_from_peers(restored, generation), third.holds(restored[0])]


def test_either_node_can_be_lost_and_replaced(crew: Crew, nodes: list[Path]) -> None:
    assert crew.call(lose_one_node_after_the_other, nodes) == [[True] * 4] * 2


def restart_and_then_lose_a_node(job: Job, nodes: list[Path]) -> list[Any]:
    """No generation is begun in the attempt between."""
    first = Rank(job, nodes[job.rank], peer_interval_seconds=0.001)
    first.restore()
    train(first, 1)
    second = Rank(job, nodes[job.rank], peer_interval_seconds=60)
    second.attempt = 1
    restored = second.restore()
    assert restored is not None
    generation = kept(second)
    assert generation is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generations, "votes", lambda *_: PeerVotes())
        second.steps(restored[0] + 1, restored[0] + 9)
    third = Rank(job, [nodes[0], nodes[2]][job.rank], peer_interval_seconds=60)
    third.attempt = 2
    return [third.restore() == (generation[1], "peer"), third.holds(generation[1])]


def test_a_restart_keeps_the_generation_that_peers_have(crew: Crew, nodes: list[Path]) -> None:
    assert crew.call(restart_and_then_lose_a_node, nodes) == [[True] * 2] * 2


def lose_a_node_without_holds(job: Job, nodes: list[Path]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("hold", "release"):
            patch.setattr(Pool, name, lambda *_: None)
        first = Rank(job, nodes[job.rank], peer_interval_seconds=1000)
        first.restore()
        step = 0
        while (generation := kept(first)) is None:
            step += 1
            first.step(step)
            ended(peers_of(first)._peers)  # nothing is filled anew while it is sent
        first.steps(step + 1, step + 9)
        second = Rank(job, [nodes[0], nodes[2]][job.rank], peer_interval_seconds=60)
        second.attempt = 1
        return generation is not None, second.restore()


def test_without_holds_the_other_ranks_have_overwritten_what_the_peers_have(
    crew: Crew, nodes: list[Path]
) -> None:
    assert crew.call(lose_a_node_without_holds, nodes) == [(True, None)] * 2


def train_on_one_node(job: Job, nodes: list[Path]) -> tuple[bool, int]:
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    rank = Rank(job, nodes[0], peer_interval_seconds=60)
    rank.restore()
    assert rank.snapshots._attempt is not None
    return rank.snapshots._attempt.peers is None, len(rank.snapshots._shelf.buffers)


def test_where_all_ranks_are_on_one_node_there_are_no_peers_and_no_buffers_for_them(
    crew: Crew, nodes: list[Path]
) -> None:
    assert crew.call(train_on_one_node, nodes) == [(True, 2)] * 2
