"""Local shards whose worker dies or whose disk is full: no file of that name, and words why."""

import fcntl
import os
import select
from pathlib import Path

import pytest

from tests.trainer.local_shards import local_writer
from tests.trainer.ranks import Crew, background_worker, kill, once_done, pid_of, sharded_state
from tests.trainer.writers import finished, lose_the_worker_of, make_folder
from trainer.checkpoint.background import CallState
from trainer.checkpoint.writer import Progress
from trainer.distributed import Job

pytestmark = pytest.mark.distributed


def lose_the_worker(job: Job, folder: Path) -> tuple[Progress, str, Progress]:
    return lose_the_worker_of(local_writer(job), job, folder)


def test_a_save_whose_worker_is_killed_has_failed_and_the_next_one_works(
    crew: Crew, tmp_path: Path
) -> None:
    expected = (Progress.FAILED, "the checkpoint worker died", Progress.WRITTEN)
    assert crew.call(lose_the_worker, tmp_path) == [expected, expected]
    assert list((tmp_path / "lost").iterdir()) == []


def kill_in_mid_write(job: Job, folder: Path) -> tuple[Progress, str, bool]:
    """Where the file is to grow there is a pipe, which takes 4 KiB and no more."""
    writer, state = local_writer(job), sharded_state(job, seed=1)
    once_done(background_worker())
    pid = pid_of(background_worker())
    make_folder(job, folder)
    pipe = folder / f".rank-{job.rank}.pt.{pid}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    writer.begin(state.tensors(), folder)
    assert select.select([reader], [], [], 30)[0]  # so it is writing
    first = os.read(reader, 2)
    assert writer.progress() is Progress.WRITING
    kill(pid)
    os.close(reader)
    return writer.progress(), writer.failure(), first == b"PK"


def test_a_worker_killed_while_it_writes_leaves_no_file_of_that_name(
    crew: Crew, tmp_path: Path
) -> None:
    expected = (Progress.FAILED, "the checkpoint worker died", True)
    assert crew.call(kill_in_mid_write, tmp_path) == [expected, expected]
    assert not list(tmp_path.glob("rank-*"))


def fill_the_disk(job: Job, folder: Path) -> tuple[Progress, str, CallState, Progress]:
    """Rank 1 finds a disk that is full, in the shape of a link to /dev/full."""
    writer, state = local_writer(job), sharded_state(job, seed=1)
    once_done(background_worker())
    pid = pid_of(background_worker())
    make_folder(job, folder)
    if job.rank == 1:
        (folder / f".rank-1.pt.{pid}").symlink_to("/dev/full")
    writer.begin(state.tensors(), folder)
    ended, reason, worker = finished(writer), writer.failure(), background_worker().state()
    writer.abandon()
    make_folder(job, folder / "next")
    writer.begin(state.tensors(), folder / "next")
    after = finished(writer)
    assert pid_of(background_worker()) == pid
    return ended, reason, worker, after


def test_a_full_disk_is_told_in_words_and_the_worker_writes_the_next_save(
    crew: Crew, tmp_path: Path
) -> None:
    there, full = crew.call(fill_the_disk, tmp_path)
    assert there == (Progress.WRITTEN, "", CallState.IDLE, Progress.WRITTEN)
    reason = "OSError: [Errno 28] No space left on device"
    assert full == (Progress.FAILED, reason, CallState.IDLE, Progress.WRITTEN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next", "rank-0.pt"]


def find_a_folder_in_the_way(job: Job, folder: Path) -> tuple[Progress, str]:
    writer = local_writer(job)
    make_folder(job, folder)
    (folder / f"rank-{job.rank}.pt").mkdir()
    writer.begin(sharded_state(job, seed=1).tensors(), folder)
    return finished(writer), writer.failure()


def test_a_file_that_cannot_get_its_name_is_removed(crew: Crew, tmp_path: Path) -> None:
    for ended, reason in crew.call(find_a_folder_in_the_way, tmp_path):
        assert ended is Progress.FAILED
        assert "Is a directory" in reason
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.pt", "rank-1.pt"]
