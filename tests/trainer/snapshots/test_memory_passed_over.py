"""What memory holds and no rank may take up: torn, doubted, older, or of another run."""

from collections.abc import Callable
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
from trainer.snapshots.doubts import strike, struck_in
from trainer.snapshots.offers import Durable, Key, Source
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


def test_every_state_that_was_spoiled_is_struck_before_the_run_begins_anew(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    spoiled = stored(a, b, step=7) + stored(a, b, step=8)
    crew.call(play, Scene((a, b), spoiled, files=Overwritten(None, True)))
    assert [struck_in(folder) for folder in (a, b)] == [{(1, 7), (1, 8)}] * 2


def test_a_rank_without_a_folder_strikes_nothing_and_refuses_all_the_same(
    crew: Crew, tmp_path: Path
) -> None:
    a, *_ = nodes(tmp_path)
    scene = Scene((a, None), stored(a, a, step=8), files=Overwritten(8, True))
    assert [played[0].raised for played in crew.call(play, scene)] == [True, True]
    assert struck_in(a) == {(1, 8)}


def test_the_buffer_to_keep_is_of_a_state_that_is_still_to_be_had(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    strike(b, attempt=1, step=9)
    snapshots = tuple(each for step in (7, 8, 9) for each in stored(a, b, step=step))
    played = crew.call(play, Scene((a, b), snapshots, files=Vanished(8)))
    assert [each[0].restored.buffer for each in played] == ["own-0-1-7", "own-1-1-7"]


def test_a_file_of_the_same_name_on_another_node_makes_up_for_one_that_is_lost(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    odd = Snapshot(0, 8, a, lacks_the_last=True)
    scene = Scene((a, b), (odd, *stored(b, b, step=8)))
    assert restored_by_all(crew, scene).num_sent == 1


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


def step_six() -> Key:
    return 1, 6


def step_nine() -> Key:
    return 1, 9


def none_valid() -> None:
    return None


def never_asked() -> Key:
    raise AssertionError("to read every file was not called for")


@pytest.mark.parametrize(
    ("newest_valid", "wins"), [(step_six, True), (none_valid, True), (step_nine, False)]
)
def test_a_damaged_newest_checkpoint_does_not_win_over_memory(
    crew: Crew, tmp_path: Path, newest_valid: Callable[[], Key | None], wins: bool
) -> None:
    a, b, _ = nodes(tmp_path)
    durable = Durable(newest=(1, 9), newest_valid=newest_valid)
    scene = Scene((a, b), stored(a, b, step=8), durable=(durable, durable))
    assert restored_by_all(crew, scene).step == 8 if wins else untouched_by_all(crew, scene)


@pytest.mark.parametrize("steps_on_b", [(), (9,), (10,)], ids=["nothing", "as new", "newer"])
def test_checkpoints_are_not_verified_for_nothing(
    crew: Crew, tmp_path: Path, steps_on_b: tuple[int, ...]
) -> None:
    a, b, _ = nodes(tmp_path)
    durable = Durable(newest=(1, 9), newest_valid=never_asked)
    snapshots = (
        Snapshot(0, 8, a),
        *(each for step in steps_on_b for each in stored(a, b, step=step)),
    )
    crew.call(play, Scene((a, b), snapshots, durable=(durable, durable)))


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
