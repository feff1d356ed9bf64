"""What memory holds and no rank may take up: torn, doubted, older, or of another run."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import Crew
from tests.trainer.snapshots.buffers import IDENTITY, Overwritten, Snapshot, Vanished
from tests.trainer.snapshots.scenes import (
    Kept,
    Scene,
    nodes,
    play,
    restored_by_all,
    stored,
    untouched_by_all,
)
from trainer.snapshots.doubts import strike
from trainer.snapshots.offers import Durable, Source
from trainer.snapshots.sources import Files


@pytest.mark.parametrize("files", [Overwritten(8, True), Overwritten(8, False), Vanished(8)])
def test_a_snapshot_that_changes_while_it_is_restored_is_given_up_for_the_one_before(
    crew: Crew, tmp_path: Path, files: Files
) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8), files=files)
    assert restored_by_all(crew, scene).step == 7


@pytest.mark.parametrize("files", [Overwritten(8, True), Overwritten(8, False), Vanished(8)])
def test_a_snapshot_that_changes_while_it_is_sent_is_given_up_for_the_one_before(
    crew: Crew, tmp_path: Path, files: Files
) -> None:
    a, b, _ = nodes(tmp_path)
    moved = stored(a, a, step=7) + stored(a, a, step=8)
    assert restored_by_all(crew, Scene((a, b), moved, files=files)).step == 7


def test_a_shard_of_another_size_is_given_up_before_anything_is_written(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    odd = Snapshot(1, 8, b, lacks_the_last=True)
    assert untouched_by_all(crew, Scene((a, b), (Snapshot(0, 8, a), odd)))


@pytest.mark.parametrize("files", [Overwritten(8, False), Vanished(8)])
def test_a_snapshot_that_is_lost_before_it_is_opened_spoils_nothing(
    crew: Crew, tmp_path: Path, files: Files
) -> None:
    a, b, _ = nodes(tmp_path)
    assert untouched_by_all(crew, Scene((a, b), stored(a, b, step=8), files=files))


def test_after_eight_tries_the_durable_tier_is_the_shorter_way(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    odd = [
        (Snapshot(0, step, a), Snapshot(1, step, b, lacks_the_last=True)) for step in range(2, 10)
    ]
    seven = (*stored(a, b, step=1), *(each for pair in odd[:7] for each in pair))
    eight = (*seven, *odd[7])
    assert restored_by_all(crew, Scene((a, b), seven)).step == 1
    assert untouched_by_all(crew, Scene((a, b), eight))


def test_a_second_copy_of_the_same_step_makes_up_for_one_that_is_lost(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    odd = Snapshot(1, 8, b, lacks_the_last=True)
    peer = Snapshot(1, 8, a, prefix="peer-")
    snapshots = (*stored(a, b, step=7), Snapshot(0, 8, a), odd, peer)
    restored = restored_by_all(crew, Scene((a, b), snapshots))
    assert (restored.step, restored.source) == (8, Source.PEER)


def test_without_a_checkpoint_nobody_begins_anew_from_tensors_that_were_written_to(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), stored(a, b, step=8), files=Overwritten(8, True))
    first, second = zip(*crew.call(play, scene, 2), strict=True)
    assert [outcome.raised for outcome in first] == [True, True]
    assert [(each.raised, each.restored, each.is_exact) for each in second] == [
        (False, None, True),
        (False, None, True),
    ]


def test_with_a_checkpoint_the_durable_tier_is_left_to_fill_them(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    files, durable = Overwritten(8, True), Durable(newest=(1, 5))
    scene = Scene((a, b), stored(a, b, step=8), files=files, durable=(durable, durable))
    outcomes = [played[0] for played in crew.call(play, scene)]
    assert [(each.raised, each.restored) for each in outcomes] == [(False, None)] * 2


def test_a_state_struck_on_one_node_is_passed_over_by_all(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    strike(b, attempt=1, step=8)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8))
    assert restored_by_all(crew, scene).step == 7


def test_a_checkpoint_that_is_newer_wins_and_one_that_is_as_new_does_not(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    newer, equal = Durable(newest=(1, 9)), Durable(newest=(1, 8))
    snapshots = stored(a, b, step=8)
    assert untouched_by_all(crew, Scene((a, b), snapshots, durable=(newer, newer)))
    assert restored_by_all(crew, Scene((a, b), snapshots, durable=(equal, equal))).step == 8


def test_all_ranks_go_by_what_rank_zero_knows_of_checkpoints(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    newer = Durable(newest=(1, 9), goes_back=True)
    scene = Scene((a, b), stored(a, b, step=8), durable=(Durable(), newer))
    assert restored_by_all(crew, scene).step == 8


def test_a_wish_to_go_back_wins_over_memory(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    wish = Durable(newest=(1, 5), goes_back=True)
    scene = Scene((a, b), stored(a, b, step=8), durable=(wish, wish))
    assert untouched_by_all(crew, scene)


@pytest.mark.parametrize("other", [{"identity": b"another run's id"}, {"world_size": 4}])
def test_what_is_of_another_run_or_world_is_passed_over(
    crew: Crew, tmp_path: Path, other: dict[str, Any]
) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8, **other))
    assert restored_by_all(crew, scene).step == 7


def test_live_tensors_of_another_run_are_passed_over(crew: Crew) -> None:
    other = b"another run's id"
    scene = Scene((None, None), live=(Kept(0, 7), Kept(1, 7)), identities=(other, other))
    assert untouched_by_all(crew, scene)


def test_ranks_that_are_of_different_runs_take_nothing_up(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    other = b"another run's id"
    snapshots = (Snapshot(0, 7, a), Snapshot(1, 7, b, identity=other))
    assert untouched_by_all(crew, Scene((a, b), snapshots, identities=(IDENTITY, other)))
