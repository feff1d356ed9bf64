"""What is saved from a snapshot is the state of its step, however many steps go on meanwhile."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.checkpoints import committed_steps, failures, restore, settings_for
from tests.trainer.ranks import Crew, background_worker, once_done, pid_of
from tests.trainer.snapshots.attempts import Rank, folder_of
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.modes import writer_for
from trainer.distributed import Job
from trainer.events import EventLog
from trainer.settings import TrainerSettings
from trainer.snapshots.lease import Lease
from trainer.snapshots.pool import Pool

MODES = ["async", "async_local_shards"]


@contextmanager
def stopped_worker() -> Iterator[None]:
    """Nothing that it is told to write is written before the block ends."""
    once_done(background_worker())
    pid = pid_of(background_worker())
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)
    once_done(background_worker())


def save_step_five(
    job: Job, shared: Path, settings: TrainerSettings, act: Callable[[Rank, Checkpointer], None]
) -> None:
    """``act`` from the end of step 4 on, until what it saves is committed or dropped."""
    rank = Rank(job, folder_of(job, shared), mode=settings.checkpoint.mode.value, interval_steps=3)
    rank.restore()
    rank.steps(1, 4)
    events = EventLog(settings.run_directory, rank=job.rank)
    events.attempt = 1
    checkpointer = Checkpointer(
        settings,
        job=job,
        state=rank.state,
        writer=writer_for(settings, job, background_worker()),
        events=events,
        report_progress=lambda: None,
    )
    act(rank, checkpointer)
    checkpointer.wait()
    checkpointer.close()
    events.close()
    rank.snapshots.close()


def save_beside_steps(rank: Rank, checkpointer: Checkpointer) -> None:
    rank.step(5)
    rank.snapshots.want(5)
    rank.step(6)
    with stopped_worker():
        checkpointer.save(5, lambda: rank.snapshots.lease(5))
        rank.steps(7, 16)  # each third of which is taken


def save_while_training_waits(rank: Rank, checkpointer: Checkpointer) -> None:
    rank.step(5)
    with stopped_worker():
        checkpointer.save(5, lambda: rank.snapshots.take_now(within=30))
        rank.steps(6, 16)


def saved_and_restored(
    job: Job, shared: Path, settings: TrainerSettings, act: Callable[..., None]
) -> tuple[int, bool]:
    save_step_five(job, shared, settings, act)
    return restore(job, settings)


@pytest.mark.distributed
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("act", [save_beside_steps, save_while_training_waits])
def test_a_save_from_memory_holds_the_values_of_its_step(
    mode: str, act: Callable[..., None], crew: Crew, folder: Path, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    assert crew.call(saved_and_restored, folder, settings, act) == [(5, True)] * 2


def unleased(
    job: Job, shared: Path, settings: TrainerSettings, checked: bool
) -> tuple[int, bool] | None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("hold", "release"):
            patch.setattr(Pool, name, lambda *_: None)
        if not checked:
            patch.setattr(Lease, "is_intact", lambda _: True)
        save_step_five(job, shared, settings, save_beside_steps)
    return restore(job, settings) if committed_steps(settings) else None


@pytest.mark.distributed
def test_without_the_lease_the_save_is_dropped_since_its_memory_was_filled_anew(
    crew: Crew, folder: Path, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    assert crew.call(unleased, folder, settings, True) == [None] * 2
    reason = "its memory was filled anew before it was written"
    assert failures(settings) == [(0, 5, reason), (1, 5, reason)]


@pytest.mark.distributed
def test_without_that_check_either_a_checkpoint_of_other_values_is_committed(
    crew: Crew, folder: Path, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    assert crew.call(unleased, folder, settings, False) == [(5, False)] * 2
