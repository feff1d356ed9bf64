"""Ranks that begin anew take up what memory holds: the same state on all, bit by bit, or none."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.trainer.ranks import Crew, sharded_state
from tests.trainer.snapshots.buffers import IDENTITY, Overwritten, Snapshot, Vanished
from trainer.distributed import Job
from trainer.snapshots import transfer
from trainer.snapshots.doubts import DoubtfulState, strike
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Durable, Source
from trainer.snapshots.restore import MemoryRestorer, Restored
from trainer.snapshots.sources import Files, NodeFiles

UNTOUCHED = 99
"""The step of the state that is there before the restore."""


@dataclass(frozen=True)
class Kept:
    """What a process has of the attempt before: the shard that it then had."""

    coordinate: int
    step: int
    attempt: int = 1


@dataclass(frozen=True)
class Scene:
    folders: tuple[Path | None, ...]
    """By rank, of its node."""

    snapshots: tuple[Snapshot, ...] = ()
    live: tuple[Kept | None, ...] = ()
    """By rank."""

    durable: tuple[Durable, ...] = ()
    """By rank; without, no rank knows of any."""

    files: Files | None = None
    identities: tuple[bytes, ...] = ()
    """By rank."""


@dataclass(frozen=True)
class Outcome:
    restored: Restored | None
    is_exact: bool
    """The tensors hold the state of the restored step, or were not touched where none was."""

    raised: bool
    is_live_kept: bool


def play(job: Job, scene: Scene, times: int = 1) -> list[Outcome]:
    """What each of so many attempts takes up, one after another."""
    _write_snapshots(job, scene)
    live = _live_of_all(job, scene)[job.rank]
    job.everyone(True)
    folder = scene.folders[job.rank]
    restorer = MemoryRestorer(
        job,
        node=str(folder or f"node of {job.rank}"),
        folder=folder,
        identity=scene.identities[job.rank] if scene.identities else IDENTITY,
        live=live,
        files=scene.files or NodeFiles(),
    )
    durable = scene.durable[job.rank] if scene.durable else Durable()
    return [_outcome(job, restorer, durable) for _ in range(times)]


def _outcome(job: Job, restorer: MemoryRestorer, durable: Durable) -> Outcome:
    state = sharded_state(job, seed=UNTOUCHED)
    restored, raised = None, False
    try:
        with mock.patch.object(transfer, "PIECE_BYTES", 4096):
            restored = restorer.restore(state.tensors().values(), durable)
    except DoubtfulState:
        raised = True
    expected = sharded_state(job, seed=restored.step if restored else UNTOUCHED)
    is_exact = state.digest() == expected.digest()
    return Outcome(restored, is_exact, raised, restorer.live.kept is not None)


def _write_snapshots(job: Job, scene: Scene) -> None:
    for snapshot in scene.snapshots:
        if snapshot.coordinate == job.rank:
            snapshot.write(job, sharded_state(job, seed=snapshot.step))


def _live_of_all(job: Job, scene: Scene) -> list[Live]:
    """The shard of a coordinate is made by its rank, and handed to whose process has it."""
    result = [Live() for _ in range(job.world_size)]
    for rank, kept in enumerate(scene.live):
        if kept is None:
            continue
        shards: list[Any] = job.from_every_rank(_shard(job, kept))
        result[rank].keep(
            shards[kept.coordinate],
            coordinate=kept.coordinate,
            attempt=kept.attempt,
            step=kept.step,
            identity=IDENTITY,
        )
    return result


def _shard(job: Job, kept: Kept) -> list[Any]:
    live = Live()
    state = sharded_state(job, seed=kept.step)
    live.keep(state.tensors().values(), coordinate=0, attempt=1, step=1, identity=IDENTITY)
    assert live.kept is not None
    return list(live.kept.tensors)


def restored_by_all(crew: Crew, scene: Scene) -> Restored:
    """What all ranks took up, as rank 0 tells it; exact on each."""
    outcomes = [played[0] for played in crew.call(play, scene)]
    assert [outcome.is_exact for outcome in outcomes] == [True] * len(outcomes)
    keys = {
        (each.restored.attempt, each.restored.step) if each.restored else None for each in outcomes
    }
    assert len(keys) == 1
    restored: Restored | None = outcomes[0].restored
    assert restored is not None
    return restored


def untouched_by_all(crew: Crew, scene: Scene) -> bool:
    """Whether no rank took anything up, or wrote to its tensors."""
    outcomes = [played[0] for played in crew.call(play, scene)]
    return all(each.restored is None and each.is_exact for each in outcomes)


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Path, ...]:
    """The folders of three nodes."""
    folders = tuple(tmp_path / name for name in "abc")
    for folder in folders:
        folder.mkdir()
    return folders


def stored(*folders: Path, step: int, **more: Any) -> tuple[Snapshot, ...]:
    """A snapshot of ``step``: the shard of each coordinate in the folder given for it."""
    return tuple(
        Snapshot(coordinate, step, folder, **more) for coordinate, folder in enumerate(folders)
    )


def test_the_newest_snapshot_that_all_ranks_have_is_taken_up(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    half = Snapshot(0, 9, a)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8) + (half,))
    restored = restored_by_all(crew, scene)
    assert (restored.step, restored.source, restored.num_sent) == (8, Source.SNAPSHOT, 0)


def test_ranks_of_one_node_find_their_shards_in_one_folder(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, *_ = nodes
    assert restored_by_all(crew, Scene((a, a), stored(a, a, step=7))).num_sent == 0


def test_shards_whose_ranks_moved_to_the_other_node_are_sent(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    restored = restored_by_all(crew, Scene((a, b), stored(b, a, step=7)))
    assert (restored.step, restored.num_sent) == (7, 2)


def test_a_new_node_is_sent_what_its_peer_has(
    crew_of: Callable[[int], Crew], nodes: tuple[Path, ...]
) -> None:
    a, b, c = nodes
    peers = (Snapshot(1, 7, c, prefix="peer-"),)
    snapshots = (Snapshot(0, 7, a), Snapshot(2, 7, c), *peers)
    restored = restored_by_all(crew_of(3), Scene((a, b, c), snapshots))
    assert (restored.source, restored.num_sent) == (Source.PEER, 1)


def test_three_ranks_that_changed_places_are_sent_their_shards(
    crew_of: Callable[[int], Crew], nodes: tuple[Path, ...]
) -> None:
    a, b, c = nodes
    restored = restored_by_all(crew_of(3), Scene((a, b, c), stored(c, a, b, step=7)))
    assert (restored.step, restored.num_sent) == (7, 3)


def test_a_rank_without_a_folder_is_sent_its_shard(crew: Crew, nodes: tuple[Path, ...]) -> None:
    a, *_ = nodes
    assert restored_by_all(crew, Scene((a, None), stored(a, a, step=7))).num_sent == 1


def test_nothing_is_taken_up_where_one_rank_has_its_shard_nowhere(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    assert untouched_by_all(crew, Scene((a, b), (Snapshot(0, 7, a),)))


def test_live_tensors_are_taken_before_the_snapshot_of_their_step(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), stored(a, b, step=7), live=(Kept(0, 7), Kept(1, 7)))
    assert restored_by_all(crew, scene).source is Source.LIVE


def test_live_tensors_of_some_ranks_alone_are_passed_over(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), stored(a, b, step=7), live=(Kept(0, 8), None))
    restored = restored_by_all(crew, scene)
    assert (restored.step, restored.source) == (7, Source.SNAPSHOT)


def test_live_tensors_of_processes_that_changed_ranks_are_sent(crew: Crew) -> None:
    scene = Scene((None, None), live=(Kept(1, 7), Kept(0, 7)))
    restored = restored_by_all(crew, scene)
    assert (restored.source, restored.num_sent) == (Source.LIVE, 2)


def test_one_rank_may_go_on_from_live_tensors_and_the_other_from_its_snapshot(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), (Snapshot(1, 7, b),), live=(Kept(0, 7), None))
    assert restored_by_all(crew, scene).source is Source.SNAPSHOT


def test_live_tensors_are_let_go_of_once_the_ranks_have_restored(crew: Crew) -> None:
    scene = Scene((None, None), live=(Kept(0, 7), Kept(1, 7)))
    assert [played[0].is_live_kept for played in crew.call(play, scene)] == [False, False]


@pytest.mark.parametrize("files", [Overwritten(8, True), Overwritten(8, False), Vanished(8)])
def test_a_snapshot_that_changes_while_it_is_restored_is_given_up_for_the_one_before(
    crew: Crew, nodes: tuple[Path, ...], files: Files
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8), files=files)
    assert restored_by_all(crew, scene).step == 7


@pytest.mark.parametrize("files", [Overwritten(8, True), Overwritten(8, False), Vanished(8)])
def test_a_snapshot_that_changes_while_it_is_sent_is_given_up_for_the_one_before(
    crew: Crew, nodes: tuple[Path, ...], files: Files
) -> None:
    a, b, _ = nodes
    moved = stored(a, a, step=7) + stored(a, a, step=8)
    assert restored_by_all(crew, Scene((a, b), moved, files=files)).step == 7


def test_a_shard_of_another_size_is_given_up_before_anything_is_written(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    odd = Snapshot(1, 8, b, lacks_the_last=True)
    assert untouched_by_all(crew, Scene((a, b), (Snapshot(0, 8, a), odd)))


def test_a_second_copy_of_the_same_step_makes_up_for_one_that_is_lost(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    odd = Snapshot(1, 8, b, lacks_the_last=True)
    peer = Snapshot(1, 8, a, prefix="peer-")
    snapshots = (*stored(a, b, step=7), Snapshot(0, 8, a), odd, peer)
    restored = restored_by_all(crew, Scene((a, b), snapshots))
    assert (restored.step, restored.source) == (8, Source.PEER)


def test_without_a_checkpoint_nobody_begins_anew_from_tensors_that_were_written_to(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), stored(a, b, step=8), files=Overwritten(8, True))
    first, second = zip(*crew.call(play, scene, 2), strict=True)
    assert [outcome.raised for outcome in first] == [True, True]
    assert [(each.raised, each.restored, each.is_exact) for each in second] == [
        (False, None, True),
        (False, None, True),
    ]


def test_with_a_checkpoint_the_durable_tier_is_left_to_fill_them(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    files, durable = Overwritten(8, True), Durable(newest=(1, 5))
    scene = Scene((a, b), stored(a, b, step=8), files=files, durable=(durable, durable))
    outcomes = [played[0] for played in crew.call(play, scene)]
    assert [(each.raised, each.restored) for each in outcomes] == [(False, None)] * 2


def test_a_state_struck_on_one_node_is_passed_over_by_all(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    strike(b, attempt=1, step=8)
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8))
    assert restored_by_all(crew, scene).step == 7


def test_a_checkpoint_that_is_newer_wins_and_one_that_is_as_new_does_not(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    newer, equal = Durable(newest=(1, 9)), Durable(newest=(1, 8))
    snapshots = stored(a, b, step=8)
    assert untouched_by_all(crew, Scene((a, b), snapshots, durable=(newer, newer)))
    assert restored_by_all(crew, Scene((a, b), snapshots, durable=(equal, equal))).step == 8


def test_all_ranks_go_by_what_rank_zero_knows_of_checkpoints(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    newer = Durable(newest=(1, 9), goes_back=True)
    scene = Scene((a, b), stored(a, b, step=8), durable=(Durable(), newer))
    assert restored_by_all(crew, scene).step == 8


def test_a_wish_to_go_back_wins_over_memory(crew: Crew, nodes: tuple[Path, ...]) -> None:
    a, b, _ = nodes
    wish = Durable(newest=(1, 5), goes_back=True)
    scene = Scene((a, b), stored(a, b, step=8), durable=(wish, wish))
    assert untouched_by_all(crew, scene)


@pytest.mark.parametrize("other", [{"identity": b"another run's id"}, {"world_size": 4}])
def test_what_is_of_another_run_or_world_is_passed_over(
    crew: Crew, nodes: tuple[Path, ...], other: dict[str, Any]
) -> None:
    a, b, _ = nodes
    scene = Scene((a, b), stored(a, b, step=7) + stored(a, b, step=8, **other))
    assert restored_by_all(crew, scene).step == 7


def test_ranks_that_are_of_different_runs_take_nothing_up(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    other = b"another run's id"
    snapshots = (Snapshot(0, 7, a), Snapshot(1, 7, b, identity=other))
    assert untouched_by_all(crew, Scene((a, b), snapshots, identities=(IDENTITY, other)))


def test_each_rank_is_to_see_the_loss_that_was_noted_with_its_shard(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    snapshots = (Snapshot(0, 7, b, probe_loss=0.25), Snapshot(1, 7, a, probe_loss=0.5))
    played = crew.call(play, Scene((a, b), snapshots))
    probes = [each[0].restored.probe for each in played]
    assert [(probe.attempt, probe.step, probe.loss) for probe in probes] == [
        (1, 7, 0.25),
        (1, 7, 0.5),
    ]


def test_each_rank_learns_which_buffer_holds_the_newest_snapshot_of_all(
    crew: Crew, nodes: tuple[Path, ...]
) -> None:
    a, b, _ = nodes
    snapshots = (*stored(a, b, step=6), *stored(a, a, step=7))
    scene = Scene((a, b), snapshots, live=(Kept(0, 9), Kept(1, 9)))
    buffers = [each[0].restored.buffer for each in crew.call(play, scene)]
    assert buffers == ["own-0-1-7", None]
