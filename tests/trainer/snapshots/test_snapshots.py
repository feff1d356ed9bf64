"""What ranks take beside their steps is what they go on from, all alike, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import Crew
from tests.trainer.snapshots.attempts import Rank, folder_of
from trainer.distributed import Job
from trainer.snapshots import shelf
from trainer.snapshots.buffer import found_in
from trainer.snapshots.doubts import DoubtfulState
from trainer.snapshots.offers import Durable
from trainer.snapshots.sizes import Room


def steps_found(folder: Path) -> list[int]:
    return sorted(header.key.step for _, header in found_in(folder))


def go_on_in_a_new_process(job: Job, shared: Path) -> tuple[Any, ...]:
    folder = folder_of(job, shared)
    first = Rank(job, folder)
    assert first.restore() is None
    first.steps(1, 5)
    first.snapshots.start()  # of step 5, and then it is killed
    second = Rank(job, folder)
    second.attempt = 1
    return second.restore(), second.holds(4), steps_found(folder)


def test_a_new_process_goes_on_from_the_newest_snapshot(crew: Crew, folder: Path) -> None:
    # That of step 5 was begun in place of that of step 3.
    assert crew.call(go_on_in_a_new_process, folder) == [((4, "snapshot"), True, [4])] * 2


def fail_softly(job: Job, shared: Path) -> tuple[Any, ...]:
    rank = Rank(job, folder_of(job, shared))
    rank.restore()
    rank.steps(1, 5)
    rank.snapshots.start()
    rank.snapshots.close()  # in the midst of step 6
    live = rank.restore(), rank.holds(5)
    rank.steps(6, 8)
    rank.state.step = None  # in the midst of an update, on one rank alone
    if job.rank == 0:
        rank.state.step = 8
    rank.snapshots.close()
    return *live, rank.restore(), rank.holds(7)


def test_a_soft_fault_loses_nothing_unless_it_comes_in_the_midst_of_an_update(
    crew: Crew, folder: Path
) -> None:
    expected = ((5, "live"), True, (7, "snapshot"), True)
    assert crew.call(fail_softly, folder) == [expected] * 2


def lag_behind(job: Job, shared: Path) -> tuple[Any, ...]:
    """Rank 1 finds no free buffer from step 4 on; rank 0 goes on."""
    folder = folder_of(job, shared)
    rank = Rank(job, folder)
    rank.restore()
    rank.steps(1, 4)
    pool = rank.snapshots._shelf._pool
    assert pool is not None
    if job.rank == 1:
        for index in range(len(rank.snapshots._shelf.buffers)):
            pool.hold(index)
    rank.steps(5, 9)
    second = Rank(job, folder)
    second.attempt = 1
    return second.restore(), second.holds(3)


def test_a_rank_overwrites_nothing_that_the_others_have_not_replaced(
    crew: Crew, folder: Path
) -> None:
    assert crew.call(lag_behind, folder) == [((3, "snapshot"), True)] * 2


def see_another_loss(job: Job, shared: Path) -> list[Any]:
    folder = folder_of(job, shared)
    first = Rank(job, folder)
    first.restore()
    first.steps(1, 5)
    seen: list[Any] = []
    for loss in (5.5, 4.0):  # that of step 5, after the snapshot of step 4; then that of step 4
        rank = Rank(job, folder)
        rank.attempt = 1
        seen.append(rank.restore())
        step = seen[-1][0] + 1
        try:
            rank.step(step, loss=loss if job.rank == 1 else float(step), until="finish")
        except DoubtfulState as error:
            seen.append(str(error).partition(" has")[0])
        rank.snapshots.close()
    return seen


def test_a_loss_that_is_another_one_than_before_strikes_the_snapshot_from_memory(
    crew: Crew, folder: Path
) -> None:
    on_zero, on_one = crew.call(see_another_loss, folder)
    assert on_zero == [(4, "snapshot"), (3, "snapshot")]
    assert on_one == [(4, "snapshot"), "step 5", (3, "snapshot")]


def train_without_room(job: Job, shared: Path) -> tuple[Any, ...]:
    folder = folder_of(job, shared)
    rank = Rank(job, folder)
    with pytest.MonkeyPatch.context() as patch:
        if job.rank == 1:
            patch.setattr(shelf, "room_in", lambda _: Room(folder_bytes=4096, memory_bytes=None))
        rank.restore()
    rank.steps(1, 3)
    return steps_found(folder), len(rank.snapshots._shelf.buffers)


def test_where_one_rank_has_no_room_none_takes_snapshots(crew: Crew, folder: Path) -> None:
    assert crew.call(train_without_room, folder) == [([], 0)] * 2


def train_without_folder(job: Job) -> tuple[Any, ...]:
    rank = Rank(job, None)
    first = rank.restore()
    rank.steps(1, 3)
    rank.snapshots.close()
    return first, rank.restore(), rank.holds(3)


def test_without_a_folder_a_process_goes_on_from_its_own_tensors_alone(crew: Crew) -> None:
    assert crew.call(train_without_folder) == [(None, (3, "live"), True)] * 2


def train_without_memory(job: Job, shared: Path) -> tuple[Any, ...]:
    folder = folder_of(job, shared)
    rank = Rank(job, folder, enabled=False)
    rank.restore()
    rank.steps(1, 3)
    rank.snapshots.close()
    return rank.restore(), steps_found(folder)


def test_where_memory_is_switched_off_nothing_is_kept(crew: Crew, folder: Path) -> None:
    assert crew.call(train_without_memory, folder) == [(None, [])] * 2


def ask_the_gate(job: Job) -> list[bool]:
    rank = Rank(job, None)
    rank.snapshots.gate.close()
    closed = rank.snapshots.gate.is_closed
    rank.restore()
    return [closed, rank.snapshots.gate.is_closed]


def test_a_new_attempt_opens_the_gate(crew: Crew) -> None:
    assert crew.call(ask_the_gate) == [[True, False]] * 2


def prefer_the_newer(job: Job, shared: Path, newest: tuple[int, int]) -> Any:
    folder = folder_of(job, shared)
    first = Rank(job, folder)
    first.restore()
    first.steps(1, 5)
    second = Rank(job, folder)
    second.attempt = 1
    return second.restore(Durable(newest))


@pytest.mark.parametrize(
    ("newest", "expected"),
    [((1, 5), None), ((1, 4), (4, "snapshot")), ((2, 1), None)],
    ids=["a later step", "the same step", "a later attempt"],
)
def test_a_checkpoint_is_taken_if_it_is_newer(
    newest: tuple[int, int], expected: Any, crew_of: Callable[[int], Crew], folder: Path
) -> None:
    assert crew_of(2).call(prefer_the_newer, folder, newest) == [expected] * 2
