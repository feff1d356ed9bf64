"""Each node's shards lie on the next node, spread over its ranks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer.peers.ring import received_on, ring

NODES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=24)


def test_the_shards_of_each_node_go_to_the_next() -> None:
    assert ring(["a", "a", "b", "b", "c", "c"]) == (2, 3, 4, 5, 0, 1)


def test_ranks_of_one_node_have_no_peer() -> None:
    assert ring(["a", "a"]) == ()


@given(NODES)
def test_no_shard_stays_on_its_own_node(nodes: list[str]) -> None:
    assert all(nodes[target] != nodes[rank] for rank, target in enumerate(ring(nodes)))


@given(NODES)
def test_each_node_receives_from_one_other_and_every_shard_once(nodes: list[str]) -> None:
    if len(set(nodes)) > 1:
        received = [received_on(node, nodes) for node in set(nodes)]
        assert sorted(rank for ranks in received for rank in ranks) == list(range(len(nodes)))
        assert all(len({nodes[rank] for rank in ranks}) == 1 for ranks in received)


@given(NODES)
def test_shards_are_spread_evenly_over_the_ranks_that_receive_them(nodes: list[str]) -> None:
    counts = Counter(ring(nodes))
    for node in set(nodes):
        of_node = [counts[rank] for rank, name in enumerate(nodes) if name == node]
        assert max(of_node) - min(of_node) <= 1
