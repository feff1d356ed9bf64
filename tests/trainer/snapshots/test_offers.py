"""Which state in memory all ranks take up: of what is offered, the newest that is complete."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint.layout import Checkpoint, CommitRecord, ShardFormat
from trainer.snapshots.offers import Durable, Holding, Key, Offer, Source, choose, durable_of


@dataclass(frozen=True)
class World:
    """Ranks on nodes, copies of shards in their folders and processes, and what follows."""

    nodes: tuple[str, ...]
    """By rank."""

    offers: tuple[Offer, ...]
    durable: Key | None
    struck: frozenset[Key]

    @property
    def size(self) -> int:
        return len(self.nodes)

    def complete(self) -> set[Key]:
        """The states of which every coordinate is offered, and that are not struck."""
        return {
            key
            for key in {offer.key for offer in self.offers} - self.struck
            if all(
                any((offer.key, offer.coordinate) == (key, each) for offer in self.offers)
                for each in range(self.size)
            )
        }


def live(coordinate: int, step: int, *, rank: int, node: str = "a", attempt: int = 1) -> Offer:
    holding = Holding(node, f"tensors of {rank}")
    return Offer(coordinate, attempt, step, Source.LIVE, rank, holding)


def stored(
    coordinate: int,
    step: int,
    *,
    rank: int,
    node: str = "a",
    attempt: int = 1,
    source: Source = Source.SNAPSHOT,
) -> Offer:
    holding = Holding(node, f"{source}-{coordinate}-{attempt}-{step}")
    return Offer(coordinate, attempt, step, source, rank, holding, sequence=4)


KEYS = st.tuples(st.integers(1, 2), st.integers(1, 2))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Each rank offers its own live tensors, if any, and every file of its node's folder."""
    nodes = tuple(draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=4)))
    coordinates = st.integers(0, len(nodes) - 1)
    offers: set[Offer] = set()
    for rank, node in enumerate(nodes):
        if draw(st.booleans()):
            attempt, step = draw(KEYS)
            coordinate = draw(st.one_of(st.just(rank), coordinates))
            offers.add(live(coordinate, step, rank=rank, node=node, attempt=attempt))
    copies = st.tuples(
        st.sampled_from(sorted(set(nodes))), st.sampled_from([Source.SNAPSHOT, Source.PEER])
    )
    for attempt, step in draw(st.sets(KEYS, max_size=3)):
        for coordinate in range(len(nodes)):
            num_least = draw(st.sampled_from([0, 1, 1, 1, 1, 1]))
            for node, source in draw(st.lists(copies, min_size=num_least, max_size=3)):
                for rank in (rank for rank, own in enumerate(nodes) if own == node):
                    offers.add(
                        stored(
                            coordinate, step, rank=rank, node=node, attempt=attempt, source=source
                        )
                    )
    durable = draw(st.none() | KEYS)
    struck = draw(st.frozensets(KEYS, max_size=1))
    return World(nodes, tuple(sorted(offers)), durable, struck)


@given(worlds())
def test_the_newest_state_that_no_coordinate_lacks_is_chosen(world: World) -> None:
    choice = choose(world.offers, world_size=world.size, struck=world.struck)
    newest = max(world.complete(), default=None)
    assert (choice and choice.key) == newest
    if choice is not None:
        assert [offer.coordinate for offer in choice.offers] == list(range(world.size))
        assert {offer.key for offer in choice.offers} == {choice.key}
        assert set(choice.offers) <= set(world.offers)


@given(worlds())
def test_a_durable_state_wins_only_if_it_is_newer(world: World) -> None:
    choice = choose(world.offers, world_size=world.size, durable=world.durable, struck=world.struck)
    newest = max(world.complete(), default=None)
    memory_wins = newest is not None and (world.durable is None or world.durable <= newest)
    assert (choice is not None) == memory_wins


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_offers_changes_nothing(world: World, chance: random.Random) -> None:
    shuffled = list(world.offers)
    chance.shuffle(shuffled)
    assert choose(shuffled, world_size=world.size) == choose(world.offers, world_size=world.size)


@given(worlds())
def test_only_what_a_rank_cannot_open_itself_is_sent(world: World) -> None:
    choice = choose(world.offers, world_size=world.size, struck=world.struck)
    for offer in choice.transfers if choice else ():
        receiver = offer.coordinate
        assert not any(
            (own.rank, own.coordinate, own.key) == (receiver, receiver, offer.key)
            for own in world.offers
        )
        if offer.source is not Source.LIVE:
            assert world.nodes[offer.rank] != world.nodes[receiver]


def test_nothing_is_chosen_where_one_coordinate_is_offered_by_nobody() -> None:
    assert choose([stored(0, 5, rank=0), stored(2, 5, rank=0)], world_size=3) is None


def test_a_later_attempt_is_newer_than_a_higher_step() -> None:
    choice = choose([stored(0, 9, rank=0), stored(0, 3, rank=0, attempt=2)], world_size=1)
    assert choice is not None
    assert choice.key == (2, 3)


def test_coordinates_of_a_larger_world_are_left_out() -> None:
    choice = choose([stored(0, 5, rank=0), stored(7, 6, rank=0)], world_size=1)
    assert choice is not None
    assert choice.step == 5


@pytest.mark.parametrize("num_tiers", [1, 2, 3])
def test_a_rank_takes_the_nearest_tier_that_it_can_open(num_tiers: int) -> None:
    peer = stored(0, 5, rank=0, source=Source.PEER)
    farthest_first = [peer, stored(0, 5, rank=0), live(0, 5, rank=0)]
    choice = choose(farthest_first[:num_tiers], world_size=1)
    assert choice is not None
    assert choice.offers == (farthest_first[num_tiers - 1],)


def test_a_struck_state_is_passed_over_for_the_one_before() -> None:
    offers = [stored(0, 5, rank=0), stored(0, 6, rank=0)]
    choice = choose(offers, world_size=1, struck=frozenset({(1, 6)}))
    assert choice is not None
    assert choice.step == 5


def test_a_file_of_its_own_node_is_nearer_than_live_tensors_elsewhere() -> None:
    offers = [
        stored(0, 5, rank=0),
        live(0, 5, rank=1, node="b"),
        stored(1, 5, rank=1, node="b"),
    ]
    choice = choose(offers, world_size=2)
    assert choice is not None
    assert choice.transfers == ()


def test_the_outermost_tier_that_any_rank_needs_names_the_choice() -> None:
    peer = stored(1, 5, rank=0, source=Source.PEER)
    choice = choose([live(0, 5, rank=0), peer], world_size=2)
    assert choice is not None
    assert choice.source is Source.PEER


def test_what_must_be_sent_is_spread_over_the_ranks_of_the_node_that_has_it() -> None:
    on_a = [stored(each, 5, rank=rank) for each in range(4) for rank in (0, 1)]
    choice = choose(on_a, world_size=4)
    assert choice is not None
    assert [(offer.rank, offer.coordinate) for offer in choice.transfers] == [(0, 2), (1, 3)]


def checkpoint(attempt: int, step: int, *, run: str = "a", wish: int | None = None) -> Checkpoint:
    record = CommitRecord(step, attempt, 2, {}, (), ShardFormat.DCP, run, 100, wish)
    return Checkpoint(Path("unused"), record)


def test_without_checkpoints_and_wish_memory_is_asked_alone() -> None:
    assert durable_of([], run="a", resume_step=None) == Durable(None, goes_back=False)


def test_the_newest_checkpoint_of_this_run_is_what_memory_is_held_against() -> None:
    found = [checkpoint(9, 90, run="b"), checkpoint(3, 20), checkpoint(2, 40)]
    assert durable_of(found, run="a", resume_step=None) == Durable((3, 20), goes_back=False)


@pytest.mark.parametrize(
    ("found", "goes_back"),
    [
        ([], True),
        ([checkpoint(1, 40), checkpoint(1, 20)], True),
        ([checkpoint(1, 40, wish=30), checkpoint(1, 20)], True),
        ([checkpoint(9, 40, run="b", wish=20), checkpoint(1, 20)], True),
        ([checkpoint(3, 50), checkpoint(2, 30, wish=20), checkpoint(1, 20)], True),
        ([checkpoint(2, 30, wish=20), checkpoint(1, 20)], False),
    ],
    ids=["none", "no wish", "another wish", "another run", "gone on without it", "obeyed"],
)
def test_a_wish_to_go_back_is_open_until_the_run_has_saved_with_it(
    found: list[Checkpoint], goes_back: bool
) -> None:
    assert durable_of(found, run="a", resume_step=20).goes_back is goes_back


def test_an_obeyed_wish_that_is_withdrawn_is_no_wish() -> None:
    found = [checkpoint(2, 30, wish=20)]
    assert durable_of(found, run="a", resume_step=None) == Durable((2, 30), goes_back=False)
