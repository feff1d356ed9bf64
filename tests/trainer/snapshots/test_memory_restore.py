"""Ranks that begin anew take up what memory holds: the same state on all, bit by bit, or none."""

from collections.abc import Callable
from pathlib import Path

from tests.trainer.ranks import Crew
from tests.trainer.snapshots.buffers import Snapshot
from tests.trainer.snapshots.scenes import (
    Kept,
    Scene,
    nodes,
    play,
    restored_by_all,
    stored,
    untouched_by_all,
)
from trainer.snapshots.doubts import Probe
from trainer.snapshots.offers import Source


def test_the_newest_snapshot_that_all_ranks_have_is_taken_up(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    half = Snapshot(0, 9, a)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8) + (half,))
    restored = restored_by_all(crew, scene)
    assert (restored.step, restored.source, restored.num_sent) == (8, Source.SNAPSHOT, 0)


def test_ranks_of_one_node_find_their_shards_in_one_folder(crew: Crew, tmp_path: Path) -> None:
    a, *_ = nodes(tmp_path)
    assert restored_by_all(crew, Scene((a, a), stored(a, a, step=7))).num_sent == 0


def test_shards_whose_ranks_moved_to_the_other_node_are_sent(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    restored = restored_by_all(crew, Scene((a, b), stored(b, a, step=7)))
    assert (restored.step, restored.num_sent) == (7, 2)


def test_a_new_node_is_sent_what_its_peer_has(
    crew_of: Callable[[int], Crew], tmp_path: Path
) -> None:
    a, b, c = nodes(tmp_path)
    peers = (Snapshot(1, 7, c, prefix="peer-"),)
    snapshots = (Snapshot(0, 7, a), Snapshot(2, 7, c), *peers)
    restored = restored_by_all(crew_of(3), Scene((a, b, c), snapshots))
    assert (restored.source, restored.num_sent) == (Source.PEER, 1)


def test_three_ranks_that_changed_places_are_sent_their_shards(
    crew_of: Callable[[int], Crew], tmp_path: Path
) -> None:
    a, b, c = nodes(tmp_path)
    restored = restored_by_all(crew_of(3), Scene((a, b, c), stored(c, a, b, step=7)))
    assert (restored.step, restored.num_sent) == (7, 3)


def test_a_rank_without_a_folder_is_sent_its_shard(crew: Crew, tmp_path: Path) -> None:
    a, *_ = nodes(tmp_path)
    assert restored_by_all(crew, Scene((a, None), stored(a, a, step=7))).num_sent == 1


def test_nothing_is_taken_up_where_one_rank_has_its_shard_nowhere(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    assert untouched_by_all(crew, Scene((a, b), (Snapshot(0, 7, a),)))


def test_live_tensors_are_taken_before_the_snapshot_of_their_step(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), stored(a, b, step=7), live=(Kept(0, 7), Kept(1, 7)))
    assert restored_by_all(crew, scene).source is Source.LIVE


def test_live_tensors_of_some_ranks_alone_are_passed_over(crew: Crew, tmp_path: Path) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), stored(a, b, step=7), live=(Kept(0, 8), None))
    restored = restored_by_all(crew, scene)
    assert (restored.step, restored.source) == (7, Source.SNAPSHOT)


def test_live_tensors_of_processes_that_changed_ranks_are_sent(crew: Crew) -> None:
    scene = Scene((None, None), live=(Kept(1, 7), Kept(0, 7)))
    restored = restored_by_all(crew, scene)
    assert (restored.source, restored.num_sent) == (Source.LIVE, 2)


def test_one_rank_may_go_on_from_live_tensors_and_the_other_from_its_snapshot(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    scene = Scene((a, b), (Snapshot(1, 7, b),), live=(Kept(0, 7), None))
    assert restored_by_all(crew, scene).source is Source.SNAPSHOT


def test_a_folder_that_cannot_be_seen_leaves_the_live_tensors(crew: Crew, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    scene = Scene((gone, gone), live=(Kept(0, 7), Kept(1, 7)))
    assert restored_by_all(crew, scene).source is Source.LIVE


def test_live_tensors_are_let_go_of_once_the_ranks_have_restored(crew: Crew) -> None:
    scene = Scene((None, None), live=(Kept(0, 7), Kept(1, 7)))
    assert [played[0].is_live_kept for played in crew.call(play, scene)] == [False, False]


def test_each_rank_is_to_see_the_loss_that_was_noted_with_its_shard(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    snapshots = (Snapshot(0, 7, b, probe_loss=0.25), Snapshot(1, 7, a, probe_loss=0.5))
    played = crew.call(play, Scene((a, b), snapshots))
    probes = [each[0].restored.probe for each in played]
    assert probes == [Probe(1, 7, 0.25, "cpu"), Probe(1, 7, 0.5, "cpu")]


def test_each_rank_learns_which_buffer_holds_the_newest_snapshot_of_all(
    crew: Crew, tmp_path: Path
) -> None:
    a, b, _ = nodes(tmp_path)
    snapshots = (*stored(a, b, step=6), *stored(a, a, step=7))
    scene = Scene((a, b), snapshots, live=(Kept(0, 9), Kept(1, 9)))
    buffers = [each[0].restored.buffer for each in crew.call(play, scene)]
    assert buffers == ["own-0-1-7", None]
