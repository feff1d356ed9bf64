"""A save killed at any system call leaves a valid checkpoint, from which the run goes on exactly.

Attempt 1 has saved steps 2 and 4. Attempt 2 goes on from 4 and is killed in its save
of step 6, which also deletes step 2 (two are kept). Attempt 3 must find the newest
committed one and end, at step 7, with the state of a run that nobody killed.

It does so too where an older step 6 lies there, spoilt or rejected (``Past``), and is
saved over again.

Where all processes die together, "after" a change leaves what "before" the next one
of the same process leaves, so only the last has an "after".
"""

from pathlib import Path

import pytest

from tests.trainer.crashes.conftest import Points, Prepare
from tests.trainer.crashes.crash import crash
from tests.trainer.crashes.orders import Act, Point
from tests.trainer.crashes.runs import Past, Trainers
from tests.trainer.crashes.syscalls import Operation
from tests.trainer.crashes.tracer import When

MODES = ["sync", "async", "async_local_shards"]
FOLDER = "step-00000006-attempt-0002"
OLDEST = "step-00000002-attempt-0001"
MARKER = f"{FOLDER}/.COMMITTED.json.PID {FOLDER}/COMMITTED.json"

pytestmark = pytest.mark.distributed


def points_for(act: Act, points: list[Point]) -> list[Point]:
    match act:
        case Act.KILL_ALL:
            last = {point.operation.process: point for point in points}
            return [point for point in points if point.when == "before" or point in last.values()]
        case Act.KILL_WRITER:
            return [point for point in points if point.operation.process.startswith("writer")]
        case _:
            return points


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("mode", "act", "when", "process", "call", "path"),
    [
        ("sync", Act.KILL_ALL, "before", "rank 0", "rename", MARKER),
        ("sync", Act.KILL_ALL, "after", "rank 0", "rename", MARKER),
        ("sync", Act.KILL_RANK, "before", "rank 1", "fsync", f"{FOLDER}/__1_0.distcp"),
        ("sync", Act.KILL_RANK, "after", "rank 0", "unlink", f"{OLDEST}/COMMITTED.json"),
        ("async", Act.KILL_WRITER, "before", "writer 1", "fsync", f"{FOLDER}/__1_0.distcp"),
        ("async", Act.KILL_RANK, "after", "writer 0", "openat", f"{FOLDER}/__0_0.distcp"),
        ("async", Act.KILL_ALL, "before", "rank 0", "rmdir", OLDEST),
        ("async_local_shards", Act.KILL_WRITER, "after", "writer 0", "write", ""),
        ("async_local_shards", Act.KILL_ALL, "before", "writer 1", "fsync", ""),
    ],
)
def test_a_run_killed_at_a_point_of_a_save_goes_on_exactly(
    *,
    mode: str,
    act: Act,
    when: When,
    process: str,
    call: str,
    path: str,
    trainers: Trainers,
    prepared: Prepare,
    points: Points,
    tmp_path: Path,
) -> None:
    point = next(
        point
        for point in points(mode)
        if (point.when, point.operation.process, point.operation.call) == (when, process, call)
        and point.operation.path.endswith(path)
    )
    assert crash(trainers, prepared(mode), tmp_path / "run", point, act) == []


@pytest.mark.parametrize("past", [Past.SPOILT, Past.REJECTED])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_that_is_saved_again_can_be_killed_at_its_commit(
    when: When, past: Past, trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    point = Point(Operation("rank 0", "rename", MARKER), 0, when)
    run = prepared("async", past)
    assert crash(trainers, run, tmp_path / "run", point, Act.KILL_ALL) == []


def test_a_writer_that_was_started_as_the_product_does_can_be_killed_too(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    """All others here are forks, which take the seconds of their imports from nobody."""
    point = Point(Operation("writer 1", "fsync", f"{FOLDER}/__1_0.distcp"), 0, "before")
    run = prepared("async")
    assert crash(trainers, run, tmp_path / "run", point, Act.KILL_WRITER, spawns=True) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "act", "past"),
    [
        (mode, act, past)
        for mode in MODES
        for act in (Act.KILL_ALL, Act.KILL_RANK, Act.KILL_WRITER)
        for past in Past
        if act is Act.KILL_ALL or past is Past.NOTHING  # the rest would say nothing new
        if (mode, act) != ("sync", Act.KILL_WRITER)  # there the rank is the writer
    ],
)
def test_a_run_killed_at_any_point_of_a_save_goes_on_exactly(
    *,
    mode: str,
    act: Act,
    past: Past,
    trainers: Trainers,
    prepared: Prepare,
    points: Points,
    tmp_path: Path,
) -> None:
    chosen = points_for(act, points(mode, past))
    assert len(chosen) > 10
    problems = []
    for number, point in enumerate(chosen):
        run = prepared(mode, past)
        problems += crash(trainers, run, tmp_path / str(number), point, act)
    assert not problems, "\n".join(problems)
