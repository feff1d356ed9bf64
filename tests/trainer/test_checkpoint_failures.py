"""Saves that fail: dropped on all ranks alike, in time, and the next one commits."""

import math
import os
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
    parts.close()


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
    parts.close()
    return waited


def test_the_wait_for_a_worker_that_is_stuck_ends_in_time(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async", timeouts={"drain_seconds": 0.5})
    waits = crew.call(save_with_a_stopped_worker, settings)
    assert all(0.4 < waited < 5 for waited in waits)
    reason = "not durable within 0.5 s"
    assert (1, 10, reason) in failures(settings)
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert committed_steps(settings) == [20]


def save_when_told_to_stop(job: Job, settings: TrainerSettings) -> float:
    """How long two saves take when rank 0 is told to stop and the worker of rank 1 is stuck."""
    stop_at = time.monotonic() + 1 if job.rank == 0 else math.inf
    parts = parts_of(job, settings, drained_by=lambda: stop_at)
    once_done(background_worker())
    if job.rank == 1:
        os.kill(pid_of(background_worker()), signal.SIGSTOP)
    started = time.monotonic()
    parts.save(job, 10)
    parts.save(job, 20)
    parts.checkpointer.wait(within=1000)
    parts.close()
    return time.monotonic() - started


def test_all_saves_together_have_the_time_that_one_rank_has_left(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async", timeouts={"drain_seconds": 30})
    assert max(crew.call(save_when_told_to_stop, settings)) < 8
    late = "not durable when the pod must end"
    assert failures(settings) == [
        (0, 10, late),
        (0, 20, "the pod must end, and no time is left for another save"),
        (1, 10, late),
        (1, 20, "another rank has no room or no time, or cannot make the folder"),
    ]


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
    parts.close()
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
    parts.close()


def test_a_worker_that_died_between_saves_costs_none(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async")
    crew.call(save_after_the_worker_died, settings)
    assert failures(settings) == []
    assert committed_steps(settings) == [10]


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
    parts.close()
    events = read_events(settings.run_directory)
    return [e["save_seconds"] for e in events if e["name"] == "checkpoint_committed"]


def test_the_time_of_a_save_is_without_its_wait_for_the_one_before(
    crew: Crew, tmp_path: Path
) -> None:
    slow, fast = crew.call(save_seconds_after_a_slow_one, settings_for(tmp_path, "async"))[0]
    assert slow > 1.4
    assert fast < slow


def save_while_a_file_goes(job: Job, settings: TrainerSettings, name: str) -> None:
    """At step 10 a file vanishes between being written and being committed."""
    parts = parts_of(job, settings)
    parts.save(job, 10)
    once_done(background_worker())
    job.everyone(True)
    if job.rank == 0:
        (settings.run_directory / "checkpoints" / folder_name(10, 1) / name).unlink()
    job.everyone(True)
    parts.checkpointer.wait()
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.close()


@pytest.mark.parametrize(
    ("mode", "name"),
    [("sync", "__1_0.distcp"), ("sync", ".metadata"), ("async_local_shards", "rank-1.pt")],
)
def test_a_save_of_which_a_file_has_vanished_is_not_committed(
    mode: str, name: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(save, settings, 5)  # so that a worker is there
    crew.call(save_while_a_file_goes, settings, name)
    reasons = {(step, name in reason) for _, step, reason in failures(settings)}
    assert reasons == {(10, True)}
    assert committed_steps(settings) == [20, 5]
