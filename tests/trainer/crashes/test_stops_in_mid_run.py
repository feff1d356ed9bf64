"""SIGTERM while a save is under way: the pod ends in time, and what it can save is saved.

Not covered: a kill in the midst of a save that SIGTERM has led to, which is a save like
any other; and a blocking save whose storage never answers, which the launcher kills.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer.crashes.conftest import Prepare
from tests.trainer.crashes.orders import Act, Outcome, Point
from tests.trainer.crashes.runs import Trainers, copy, events, last_digests, log, restored_steps
from tests.trainer.crashes.syscalls import Operation
from tests.trainer.crashes.tracer import When
from trainer.checkpoint.layout import COMMIT_RECORD, folder_name

DRAIN_SECONDS = 6

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def opening(when: When, step: int, process: str = "writer 1") -> Point:
    return Point(Operation(process, "openat", f"{folder_name(step, 2)}/__1_0.distcp"), 0, when)


def goes_on_from(step: int, trainers: Trainers, folder: Path, mode: str) -> dict[int, str]:
    again = trainers.run(folder, f"checkpoint.mode={mode}")
    assert again.codes == {0: 0, 1: 0}, log(folder)
    assert restored_steps(folder)[-1] == step
    return last_digests(folder)


def test_a_stop_in_a_last_save_that_never_ends_is_heeded_in_time(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    acts = [(opening("before", 7), Act.TERMINATE), (opening("after", 7), Act.STOP_WRITER)]
    assert stopped_in_time(trainers, folder, acts).done == 2
    assert goes_on_from(6, trainers, folder, "async") == run.digests


def test_a_stop_while_one_save_waits_for_another_leaves_no_time_for_a_third(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    acts = [
        (opening("before", 6), Act.TERMINATE),
        (opening("after", 6), Act.STOP_WRITER),
        (opening("after", 7), Act.STOP_WRITER),
    ]
    outcome = stopped_in_time(trainers, folder, acts)
    assert outcome.done == 2, "a save was begun though no time was left"
    assert goes_on_from(4, trainers, folder, "async") == run.digests


def stopped_in_time(trainers: Trainers, folder: Path, acts: Sequence[tuple[Point, Act]]) -> Outcome:
    """What came of ``acts``, of which the first stops a run that has ``DRAIN_SECONDS`` then."""
    drain = f"timeouts.drain_seconds={DRAIN_SECONDS}"
    outcome = trainers.run(folder, "checkpoint.mode=async", drain, acts=acts)
    assert outcome.codes == {0: 143, 1: 143}, log(folder)
    assert outcome.left == []
    assert DRAIN_SECONDS - 1 < outcome.seconds < DRAIN_SECONDS + 5
    return outcome


def test_a_stop_that_is_seen_at_the_last_step_lets_the_run_end(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("sync")
    folder = copy(run.folder, tmp_path / "copy")
    acts = [(opening("before", 6, "rank 1"), Act.TERMINATE)]
    outcome = trainers.run(folder, "checkpoint.mode=sync", acts=acts)
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert len(events(folder, "run_finished")) == 4  # both ranks, in attempts 1 and 2
    assert last_digests(folder) == run.digests


def test_a_blocking_save_at_a_stop_may_take_longer_than_a_step(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    """Step 5 is saved as planned, 7 because of the stop: there rank 0 takes 9 s, a step 8 s."""
    folder = copy(prepared("sync").folder, tmp_path / "copy")
    five, seven = folder_name(5, 2), folder_name(7, 2)
    record = f"{five}/.{COMMIT_RECORD}.PID {five}/{COMMIT_RECORD}"
    # Rank 1 renames nothing, or it would stand still for as long.
    metadata = f"{seven}/.metadata.tmp {seven}/.metadata"
    outcome = trainers.run(
        folder,
        "checkpoint.mode=sync",
        "checkpoint.interval_steps=5",
        "max_steps=9",
        "timeouts.hang_seconds=8",
        acts=[
            (Point(Operation("rank 0", "rename", record), 0, "before"), Act.TERMINATE),
            (Point(Operation("rank 0", "rename", metadata), 0, "before"), Act.DELAY),
        ],
    )
    assert outcome.codes == {0: 143, 1: 143}, log(folder)
    assert outcome.done == 2
    again = trainers.run(folder, "checkpoint.mode=sync", "max_steps=9")
    assert again.codes == {0: 0, 1: 0}, log(folder)
    assert restored_steps(folder)[-1] == 7
