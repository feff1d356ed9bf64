"""Storage and writers that fail in mid-run: training goes on or ends in words, in bounded time.

Attempt 2 goes on from step 4 and meets the failure in its save of step 6; the last
step is 7. Whatever it comes to, the checkpoint of step 4 stands until a newer one is
valid, and another attempt ends with the state of a run that met no failure.
"""

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.crashes.conftest import Prepare
from tests.trainer.crashes.orders import Act, Outcome, Point
from tests.trainer.crashes.runs import Trainers, copy, events, last_digests, log, restored_steps
from tests.trainer.crashes.server import AWAY, FILLER
from tests.trainer.crashes.syscalls import Operation
from tests.trainer.crashes.tracer import When
from trainer.checkpoint.layout import COMMIT_RECORD, folder_name

FOLDER = folder_name(6, 2)
NEXT = folder_name(7, 2)
BOUND_SECONDS = 90.0

Acts = list[tuple[Point, Act]]
Disk = Callable[[Path], Path]

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def at(when: When, process: str, call: str, path: str) -> Point:
    return Point(Operation(process, call, path), 0, when)


BEFORE_THE_FOLDER = at("before", "rank 0", "mkdir", FOLDER)
SHARD_OPENED = at("after", "writer 1", "openat", f"{FOLDER}/__1_0.distcp")
BEFORE_THE_RECORD = at("before", "rank 0", "openat", f"{FOLDER}/.COMMITTED.json.PID")
BEFORE_THE_MARKER = at(
    "before", "rank 0", "rename", f"{FOLDER}/.COMMITTED.json.PID {FOLDER}/{COMMIT_RECORD}"
)
DROPPED = at("after", "rank 0", "rmdir", FOLDER)
BEFORE_THE_NEXT = at("before", "rank 0", "mkdir", NEXT)


@pytest.fixture
def disk() -> Iterator[Disk]:
    """``disk(folder)`` makes ``folder`` a file system of its own, of 16 MiB, with what is in it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mounted: list[Path] = []

    def mount(folder: Path) -> Path:
        kept = folder.with_name(f"{folder.name}-before")
        folder.rename(kept)
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=16m", "steadfast-test", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def meet(trainers: Trainers, folder: Path, mode: str, acts: Acts, *changes: str) -> Outcome:
    """Attempt 2, which must come to its end by itself and within the bound."""
    began = time.monotonic()
    outcome = trainers.run(folder, f"checkpoint.mode={mode}", *changes, acts=acts)
    assert time.monotonic() - began < BOUND_SECONDS
    assert outcome.left == []
    assert outcome.done == len(acts)
    return outcome


def reasons(folder: Path) -> list[str]:
    """Why the save of step 6 was dropped, by rank; every rank must have said so."""
    failed = [event for event in events(folder, "checkpoint_failed") if event["step"] == 6]
    assert [event["rank"] for event in sorted(failed, key=lambda e: e["rank"])] == [0, 1]
    return [event["reason"] for event in failed]


def goes_on_from(step: int, trainers: Trainers, folder: Path, mode: str) -> dict[int, str]:
    """The digests at the end of attempt 3, which must begin from ``step``."""
    again = trainers.run(folder, f"checkpoint.mode={mode}")
    assert again.codes == {0: 0, 1: 0}, log(folder)
    assert restored_steps(folder)[-1] == step
    return last_digests(folder)


@pytest.mark.parametrize("whole", [False, True], ids=["checkpoints", "the run's whole folder"])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(BEFORE_THE_FOLDER, id="folder"),
        pytest.param(SHARD_OPENED, id="shard", marks=pytest.mark.slow),
        pytest.param(BEFORE_THE_RECORD, id="record"),
    ],
)
def test_a_disk_that_stays_full_ends_the_run_in_words_and_what_was_saved_stands(
    *,
    point: Point,
    whole: bool,
    trainers: Trainers,
    prepared: Prepare,
    disk: Disk,
    tmp_path: Path,
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    checkpoints = folder / "run" / "checkpoints"
    disk(folder / "run" if whole else checkpoints)
    outcome = meet(trainers, folder, "async", [(point, Act.FILL)])
    assert outcome.codes == {0: 1, 1: 1}
    assert "could not be saved, twice" in log(folder)
    (checkpoints / FILLER).unlink()
    assert goes_on_from(4, trainers, folder, "async") == run.digests


@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_a_disk_that_is_full_for_a_while_costs_one_save(
    mode: str, trainers: Trainers, prepared: Prepare, disk: Disk, tmp_path: Path
) -> None:
    run = prepared(mode)
    folder = copy(run.folder, tmp_path / "copy")
    disk(folder / "run" / "checkpoints")
    writer = "writer 1" if mode == "async" else "rank 1"
    opened = at("after", writer, "openat", f"{FOLDER}/__1_0.distcp")
    outcome = meet(trainers, folder, mode, [(opened, Act.FILL), (DROPPED, Act.FREE)])
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert "No space left" in "".join(reasons(folder))
    assert last_digests(folder) == run.digests
    assert goes_on_from(7, trainers, folder, mode) == run.digests


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(BEFORE_THE_FOLDER, id="folder", marks=pytest.mark.slow),
        pytest.param(SHARD_OPENED, id="shard", marks=pytest.mark.slow),
        pytest.param(BEFORE_THE_MARKER, id="marker"),
    ],
)
def test_a_folder_that_vanishes_ends_the_run_in_words_and_what_was_saved_stands(
    point: Point, trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    """It is not made anew: a file system that is gone would be written beside."""
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    checkpoints = folder / "run" / "checkpoints"
    outcome = meet(trainers, folder, "async", [(point, Act.VANISH)])
    assert outcome.codes == {0: 1, 1: 1}
    assert f"{checkpoints}: No such file or directory" in log(folder)
    assert "could not be saved, twice" in log(folder)
    assert not checkpoints.exists()
    checkpoints.with_name(AWAY).rename(checkpoints)
    assert goes_on_from(4, trainers, folder, "async") == run.digests


def test_a_folder_that_vanishes_for_a_while_costs_one_save(
    trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    failed = dataclasses.replace(BEFORE_THE_MARKER, when="after")
    acts = [(BEFORE_THE_MARKER, Act.VANISH), (failed, Act.RETURN)]
    outcome = meet(trainers, folder, "async", acts)
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert "No such file or directory" in "".join(reasons(folder))
    assert goes_on_from(7, trainers, folder, "async") == run.digests


@pytest.mark.parametrize("ends", [True, False], ids=["for a while", "for good"])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(BEFORE_THE_FOLDER, id="folder"),
        pytest.param(BEFORE_THE_MARKER, id="marker", marks=pytest.mark.slow),
    ],
)
def test_a_folder_that_is_made_read_only_costs_no_checkpoint(
    *,
    point: Point,
    ends: bool,
    trainers: Trainers,
    prepared: Prepare,
    disk: Disk,
    tmp_path: Path,
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    mounted = disk(folder / "run" / "checkpoints")
    mended: Acts = [(BEFORE_THE_NEXT, Act.WRITABLE)] if ends else []
    outcome = meet(trainers, folder, "async", [(point, Act.READ_ONLY), *mended])
    assert "Read-only file system" in "".join(reasons(folder))
    if ends:
        assert outcome.codes == {0: 0, 1: 0}, log(folder)
        assert last_digests(folder) == run.digests
    else:
        assert outcome.codes == {0: 1, 1: 1}
        assert "could not be saved, twice" in log(folder)
        subprocess.run(["mount", "-o", "remount,bind,rw", str(mounted)], check=True)
    assert goes_on_from(7 if ends else 4, trainers, folder, "async") == run.digests


@pytest.mark.parametrize(
    "mode", ["async", pytest.param("async_local_shards", marks=pytest.mark.slow)]
)
def test_a_writer_that_is_stopped_costs_one_save(
    mode: str, trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared(mode)
    folder = copy(run.folder, tmp_path / "copy")
    name = "__1_0.distcp" if mode == "async" else ".rank-1.pt.PID"
    opened = at("after", "writer 1", "openat", f"{FOLDER}/{name}")
    outcome = meet(trainers, folder, mode, [(opened, Act.STOP_WRITER)], "timeouts.drain_seconds=1")
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert "not durable within 1 s" in "".join(reasons(folder))
    assert last_digests(folder) == run.digests
    assert goes_on_from(7, trainers, folder, mode) == run.digests
