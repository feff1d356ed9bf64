"""Saves of local shards as ranks make them, without the checkpointer around them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.trainer.ranks import background_worker, fill, once_done, pid_of, sharded_state
from tests.trainer.writers import finished, make_folder
from trainer.checkpoint import local_reader
from trainer.checkpoint.layout import Checkpoint, CommitRecord, FileRecord, ShardFormat
from trainer.checkpoint.local_writer import LocalWriter
from trainer.checkpoint.writer import Progress
from trainer.distributed import Job
from trainer.state import TrainState


def local_writer(job: Job) -> LocalWriter:
    return LocalWriter(background_worker(), rank=job.rank)


def save(job: Job, writer: LocalWriter, state: TrainState, folder: Path) -> list[FileRecord]:
    """A save during which training goes on at once; this rank's files."""
    make_folder(job, folder)
    writer.begin(state.tensors(), folder)
    fill(state, seed=999)
    assert finished(writer) is Progress.WRITTEN, writer.failure()
    assert job.everyone(True)
    return writer.finish()


@contextmanager
def begun_while_stopped(
    job: Job, writer: LocalWriter, state: TrainState, folder: Path
) -> Iterator[None]:
    """Begin a save of which nothing is written before the block ends."""
    once_done(background_worker())
    pid = pid_of(background_worker())
    os.kill(pid, signal.SIGSTOP)
    make_folder(job, folder)
    writer.begin(state.tensors(), folder)
    yield
    os.kill(pid, signal.SIGCONT)


def checkpoint_at(folder: Path, files: list[FileRecord], *, world_size: int) -> Checkpoint:
    record = CommitRecord(
        step=1,
        attempt=1,
        world_size=world_size,
        fingerprint={},
        files=tuple(files),
        format=ShardFormat.LOCAL_SHARDS,
        run="run",
        max_steps=100,
    )
    return Checkpoint(folder, record)


def restored_digest(job: Job, folder: Path, files: list[FileRecord]) -> str:
    """Of a state of other values into which this rank's file was read."""
    state = sharded_state(job, seed=5)
    checkpoint = checkpoint_at(folder, files, world_size=job.world_size)
    assert local_reader.read(checkpoint, state.tensors(), job.rank) is None
    return state.digest()
