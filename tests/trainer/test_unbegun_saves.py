"""Saves that cannot begin on one rank, for want of memory or a process: dropped on all alike."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoints import committed_steps, failures, parts_of, settings_for
from tests.trainer.ranks import Crew, background_worker, kill, once_done, pid_of
from trainer.checkpoint import background
from trainer.checkpoint.background import BackgroundWorker
from trainer.distributed import Job
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.distributed


def save_without(job: Job, settings: TrainerSettings, missing: str) -> None:
    """At step 10 rank 1 can have no memory to stage in, or no process to write."""
    parts = parts_of(job, settings)
    once_done(background_worker())
    parts.save(job, 5)
    parts.checkpointer.wait()
    parts.close()
    with pytest.MonkeyPatch.context() as patch:
        if job.rank == 1 and missing == "memory":
            patch.setattr(BackgroundWorker, "memory", raising(errno.ENOMEM))
        if job.rank == 1 and missing == "process":
            patch.setattr(background, "_new_queue", raising(errno.EAGAIN))
        parts = parts_of(job, settings)
        if missing == "process":
            kill(pid_of(background_worker()))
        parts.save(job, 10)
        parts.checkpointer.wait()
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.close()


def raising(number: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("mode", ["async", "async_local_shards"])
@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("memory", "OSError: [Errno 12] Cannot allocate memory"),
        ("process", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ],
)
def test_a_save_that_cannot_begin_on_one_rank_is_dropped_on_all_and_the_next_one_commits(
    *, missing: str, reason: str, mode: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(save_without, settings, missing)
    assert failures(settings) == [(0, 10, "another rank's part failed"), (1, 10, reason)]
    assert committed_steps(settings) == [20, 5]
