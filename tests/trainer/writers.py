"""What tests of both writers of the background worker do with one."""

import os
import signal
from pathlib import Path

from tests.trainer.ranks import background_worker, kill, once_done, pid_of, sharded_state
from trainer.checkpoint.writer import Progress, ShardWriter
from trainer.distributed import Job


def make_folder(job: Job, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    assert job.everyone(folder.is_dir())


def finished(writer: ShardWriter) -> Progress:
    """This rank's progress once it is no longer WRITING."""
    if writer.progress() is Progress.WRITING:
        once_done(background_worker())
    return writer.progress()


def lose_the_worker_of(
    writer: ShardWriter, job: Job, folder: Path
) -> tuple[Progress, str, Progress]:
    """How a save ends whose worker is killed before it writes, and how the next one does."""
    worker, state = background_worker(), sharded_state(job, seed=1)
    once_done(worker)
    pid = pid_of(worker)
    os.kill(pid, signal.SIGSTOP)  # so that it cannot be done before it is killed
    make_folder(job, folder / "lost")
    writer.begin(state.tensors(), folder / "lost")
    assert writer.progress() is Progress.WRITING
    kill(pid)
    ended, reason = writer.progress(), writer.failure()
    writer.abandon()
    make_folder(job, folder / "next")
    writer.begin(state.tensors(), folder / "next")
    return ended, reason, finished(writer)
