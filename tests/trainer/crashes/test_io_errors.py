"""A call that fails with EIO in mid-save costs that save, and what follows it may be killed too."""

from pathlib import Path

import pytest

from tests.trainer.crashes.conftest import Prepare
from tests.trainer.crashes.orders import Act, Point
from tests.trainer.crashes.runs import Trainers, copy, events, last_digests, log, restored_steps
from tests.trainer.crashes.syscalls import Operation
from trainer.checkpoint.layout import COMMIT_RECORD, folder_name

FOLDER = folder_name(6, 2)
MARKER = f"{FOLDER}/.{COMMIT_RECORD}.PID {FOLDER}/{COMMIT_RECORD}"
SHARD_SYNCED = Point(Operation("writer 1", "fsync", f"{FOLDER}/__1_0.distcp"), 0, "after")

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("mode", "process", "call", "path"),
    [
        ("sync", "rank 1", "fsync", f"{FOLDER}/__1_0.distcp"),
        ("async", "writer 1", "write", f"{FOLDER}/__1_0.distcp"),
        ("async", "writer 1", "fsync", f"{FOLDER}/__1_0.distcp"),
        ("async", "rank 0", "fsync", f"{FOLDER}/.{COMMIT_RECORD}.PID"),
        ("async", "rank 0", "rename", MARKER),
        ("async_local_shards", "writer 1", "fsync", f"{FOLDER}/.rank-1.pt.PID"),
    ],
)
def test_a_call_that_fails_costs_one_save(
    *,
    mode: str,
    process: str,
    call: str,
    path: str,
    trainers: Trainers,
    prepared: Prepare,
    tmp_path: Path,
) -> None:
    run = prepared(mode)
    folder = copy(run.folder, tmp_path / "copy")
    acts = [(Point(Operation(process, call, path), 0, "after"), Act.EIO)]
    outcome = trainers.run(folder, f"checkpoint.mode={mode}", acts=acts)
    assert (outcome.codes, outcome.done, outcome.left) == ({0: 0, 1: 0}, 1, []), log(folder)
    failed = events(folder, "checkpoint_failed")
    assert {(event["rank"], event["step"]) for event in failed} == {(0, 6), (1, 6)}
    # Of a write that failed, torch's zip writer says what it saw: a file that is too short.
    words = "unexpected pos" if call == "write" else "Input/output error"
    assert words in "".join(event["reason"] for event in failed)
    assert last_digests(folder) == run.digests
    assert goes_on_from(7, trainers, folder, mode) == run.digests


@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_the_deletion_of_a_dropped_save_can_be_killed(
    call: str, trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    path = FOLDER if call == "rmdir" else f"{FOLDER}/__1_0.distcp"
    deleting = Point(Operation("rank 0", call, path), 0, "before")
    acts = [(SHARD_SYNCED, Act.EIO), (deleting, Act.KILL_ALL)]
    outcome = trainers.run(folder, "checkpoint.mode=async", acts=acts)
    assert (outcome.codes, outcome.done) == ({0: -9, 1: -9}, 2), log(folder)
    newest = 7 if (folder / "run/checkpoints" / folder_name(7, 2) / COMMIT_RECORD).exists() else 4
    assert goes_on_from(newest, trainers, folder, "async") == run.digests


def goes_on_from(step: int, trainers: Trainers, folder: Path, mode: str) -> dict[int, str]:
    again = trainers.run(folder, f"checkpoint.mode={mode}")
    assert again.codes == {0: 0, 1: 0}, log(folder)
    assert restored_steps(folder)[-1] == step
    return last_digests(folder)
