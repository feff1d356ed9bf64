"""Saves that fail: dropped on all ranks alike, in time, and the next one commits."""

import errno
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.trainer.checkpoints import (
    committed_steps,
    failures,
    parts_of,
    restore,
    save,
    settings_for,
)
from tests.trainer.ranks import Crew, background_worker, kill, once_done, pid_of
from trainer.checkpoint import checkpointer, layout
from trainer.checkpoint.layout import folder_name
from trainer.checkpoint.shard_file import warm_up
from trainer.distributed import Job
from trainer.events import read_events
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.distributed


def test_a_save_without_a_folder_is_dropped_and_the_next_one_commits(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / folder_name(10, 1)).write_text("in the way")
    crew.call(save, settings, 10, 20)
    assert committed_steps(settings) == [20]
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert all("File exists" in reason for _, _, reason in failures(settings))


def save_with_a_dead_worker(job: Job, settings: TrainerSettings) -> None:
    """At step 10 the worker of rank 1 is killed in the middle of the save."""
    parts = parts_of(job, settings)
    once_done(background_worker())
    pid = pid_of(background_worker())
    if job.rank == 1:
        os.kill(pid, signal.SIGSTOP)  # so that it cannot be done before it is killed
    parts.save(job, 10)
    if job.rank == 1:
        kill(pid)
    parts.checkpointer.wait()
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.events.close()


def test_a_save_whose_worker_is_killed_is_dropped_on_all_ranks_and_the_next_one_commits(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    crew.call(save_with_a_dead_worker, settings)
    assert failures(settings) == [
        (0, 10, "another rank's part failed"),
        (1, 10, "the checkpoint worker died"),
    ]
    assert committed_steps(settings) == [20]
    assert crew.call(restore, settings) == [(20, True)] * 2


def save_with_a_stopped_worker(job: Job, settings: TrainerSettings) -> float:
    """How long the ranks wait at step 10 for the worker of rank 1, which never writes."""
    parts = parts_of(job, settings)
    once_done(background_worker())
    if job.rank == 1:
        os.kill(pid_of(background_worker()), signal.SIGSTOP)
    parts.save(job, 10)
    started = time.monotonic()
    parts.checkpointer.wait()
    waited = time.monotonic() - started
    background_worker().start(warm_up)
    once_done(background_worker())
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.events.close()
    return waited


def test_the_wait_for_a_worker_that_is_stuck_ends_in_time(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async", timeouts={"drain_seconds": 0.5})
    waits = crew.call(save_with_a_stopped_worker, settings)
    assert all(0.4 < waited < 5 for waited in waits)
    reason = "not durable within 0.5 s"
    assert (1, 10, reason) in failures(settings)
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert committed_steps(settings) == [20]


def advance_while_one_rank_writes(job: Job, settings: TrainerSettings) -> tuple[list[int], float]:
    """What is committed while rank 1 still writes, and how many ranks do; then it may go on."""
    parts = parts_of(job, settings)
    once_done(background_worker())
    pid = pid_of(background_worker())
    if job.rank == 1:
        os.kill(pid, signal.SIGSTOP)
    parts.save(job, 10)
    if job.rank == 0:
        once_done(background_worker())
    assert job.everyone(True)
    agreed = job.agree(parts.checkpointer.votes())
    parts.checkpointer.advance(agreed)
    assert job.everyone(True)
    before = committed_steps(settings)
    if job.rank == 1:
        os.kill(pid, signal.SIGCONT)
    parts.checkpointer.wait()
    parts.events.close()
    return before, agreed.writing


def test_nothing_is_committed_before_every_rank_has_written(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async")
    assert crew.call(advance_while_one_rank_writes, settings) == [([], 1.0)] * 2
    assert committed_steps(settings) == [10]


def save_after_the_worker_died(job: Job, settings: TrainerSettings) -> None:
    parts = parts_of(job, settings)
    once_done(background_worker())
    kill(pid_of(background_worker()))
    parts.save(job, 10)
    parts.checkpointer.wait()
    parts.events.close()


def test_a_worker_that_died_between_saves_costs_none(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async")
    crew.call(save_after_the_worker_died, settings)
    assert failures(settings) == []
    assert committed_steps(settings) == [10]


def save_without_room_on_rank_zero(job: Job, settings: TrainerSettings) -> None:
    """At step 10 the files are written, but what makes them a checkpoint finds no room."""
    parts = parts_of(job, settings)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    parts.save(job, 10)
    if job.rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, unlimited[1]))
    parts.checkpointer.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.events.close()


def test_a_commit_that_finds_no_room_drops_the_save(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async")
    crew.call(save_without_room_on_rank_zero, settings)
    failed = failures(settings)
    assert {(rank, step) for rank, step, _ in failed} == {(0, 10), (1, 10)}
    assert all("File too large" in reason for _, _, reason in failed)
    assert committed_steps(settings) == [20]


def save_thrice_without_the_folder_at_first(job: Job, settings: TrainerSettings) -> None:
    """The run's folder is gone at steps 10 and 20, and back at 30."""
    parts = parts_of(job, settings)
    away = settings.run_directory.with_name("away")
    job.everyone(True)
    if job.rank == 0:
        settings.run_directory.rename(away)
    for step in (10, 20):
        job.everyone(True)
        parts.save(job, step)
        parts.checkpointer.wait()
    assert job.everyone(not settings.run_directory.exists())
    if job.rank == 0:
        away.rename(settings.run_directory)
    job.everyone(True)
    parts.save(job, 30)
    parts.checkpointer.wait()
    parts.events.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_while_the_runs_folder_is_gone_saves_fail_in_words_and_it_is_not_made_anew(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    settings = settings_for(tmp_path / "run", mode)
    crew.call(save_thrice_without_the_folder_at_first, settings)
    reason = f"{tmp_path}/run/checkpoints: No such file or directory"
    assert failures(settings) == [(r, step, reason) for r in (0, 1) for step in (10, 20)]
    assert committed_steps(settings) == [30]


def save_with_little_room(job: Job, settings: TrainerSettings) -> tuple[int, int, str]:
    """At step 10 too little is free for what both ranks save, on rank 1's word alone."""
    parts = parts_of(job, settings)
    needed = 2 * 3 * 4 * (257 * 8 + 8 * 3 + 3 + 3)  # about: both ranks, three float32 a value
    real = checkpointer.free_bytes
    if job.rank == 1:
        checkpointer.free_bytes = lambda folder: real(folder) and needed // 4
    try:
        parts.save(job, 10)
        parts.checkpointer.wait()
    finally:
        checkpointer.free_bytes = real
    after_first = parts.checkpointer.committed_step
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.events.close()
    return after_first, parts.checkpointer.committed_step, parts.checkpointer.last_failure


def test_a_save_that_would_not_fit_is_dropped_on_all_ranks_before_a_byte_is_written(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    first, second = crew.call(save_with_little_room, settings)
    assert (first[:2], second[:2]) == ((0, 20), (0, 20))
    assert first[2] == "another rank has no room or cannot make the folder"
    assert second[2] == f"{tmp_path}/checkpoints: a save needs 1.1 MB and 0.0 MB are free"
    assert committed_steps(settings) == [20]


def save_beside_debris(job: Job, settings: TrainerSettings) -> list[str]:
    """What is left once a save found room only by what a dead attempt had left behind."""
    parts = parts_of(job, settings, attempt=2)
    debris = tmp_debris(settings)
    real = checkpointer.free_bytes
    checkpointer.free_bytes = lambda folder: 0 if debris.exists() else real(folder)
    try:
        for step in (10, 20):  # rank 1 may look before rank 0 has made room for the first
            parts.save(job, step)
            parts.checkpointer.wait()
    finally:
        checkpointer.free_bytes = real
        parts.events.close()
    return sorted(path.name for path in debris.parent.iterdir())


def tmp_debris(settings: TrainerSettings) -> Path:
    return settings.run_directory / "checkpoints" / folder_name(90, 1)


def test_what_a_dead_attempt_left_makes_room_for_the_next(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    tmp_debris(settings).mkdir(parents=True)
    crew.call(save_beside_debris, settings)
    assert not tmp_debris(settings).exists()
    assert 20 in committed_steps(settings)


def save_seconds_after_a_slow_one(job: Job, settings: TrainerSettings) -> list[float]:
    """How long two saves took, of which the second was begun while the first was held up."""
    parts = parts_of(job, settings)
    once_done(background_worker())
    pid = pid_of(background_worker())
    os.kill(pid, signal.SIGSTOP)
    parts.save(job, 10)
    timer = threading.Timer(1.5, os.kill, (pid, signal.SIGCONT))
    timer.start()
    parts.save(job, 20)
    parts.checkpointer.wait()
    timer.join()
    parts.events.close()
    events = read_events(settings.run_directory)
    return [e["save_seconds"] for e in events if e["name"] == "checkpoint_committed"]


def test_the_time_of_a_save_is_without_its_wait_for_the_one_before(
    crew: Crew, tmp_path: Path
) -> None:
    slow, fast = crew.call(save_seconds_after_a_slow_one, settings_for(tmp_path, "async"))[0]
    assert slow > 1.4
    assert fast < slow


def commit_though_old_ones_cannot_go(job: Job, settings: TrainerSettings) -> int:
    parts = parts_of(job, settings)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    real, layout.clean_up = layout.clean_up, refuse
    try:
        parts.save(job, 10)
        parts.checkpointer.wait()
    finally:
        layout.clean_up = real
        parts.events.close()
    return parts.checkpointer.committed_step


def test_a_commit_stands_though_old_checkpoints_cannot_be_deleted(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    assert crew.call(commit_though_old_ones_cannot_go, settings) == [10, 10]
    assert failures(settings) == []
