"""Disks that are full, gone or read-only cost a save, on all ranks alike, and no training."""

import errno
import functools
import logging
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.trainer.checkpoints import (
    Messages,
    committed_steps,
    failures,
    parts_of,
    settings_for,
)
from tests.trainer.ranks import Crew, background_worker
from trainer.checkpoint import deletions, layout
from trainer.checkpoint.layout import folder_name
from trainer.checkpoint.modes import writer_for
from trainer.checkpoint.staging import HostShard
from trainer.distributed import Job
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.distributed


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
    parts.close()


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
    parts.close()


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


def save_while_the_folder_goes(job: Job, settings: TrainerSettings, *, is_replaced: bool) -> None:
    """At step 10 the run's folder goes once the save's own is made; it is back for step 20."""
    parts = parts_of(job, settings)
    away = settings.run_directory.with_name("away")
    writer = type(writer_for(settings, job, background_worker()))
    really_begin = writer.begin

    def lose_and_begin(
        self: Any, tensors: dict[str, Tensor], folder: Path, held: HostShard | None = None
    ) -> None:
        job.everyone(True)
        if job.rank == 0:
            settings.run_directory.rename(away)
            if is_replaced:
                folder.mkdir(parents=True)
        job.everyone(True)
        really_begin(self, tensors, folder, held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "begin", lose_and_begin)
        parts.save(job, 10)
        parts.checkpointer.wait()
    parts.checkpointer.wait_for_deletions()
    assert job.everyone(settings.run_directory.exists() == is_replaced)
    if is_replaced and job.rank == 0:
        shutil.rmtree(settings.run_directory)
    if job.rank == 0:
        away.rename(settings.run_directory)
    job.everyone(True)
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.close()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "another"])
@pytest.mark.parametrize("mode", ["sync", "async", "async_local_shards"])
def test_a_folder_that_goes_in_mid_save_is_not_made_anew_and_another_is_not_committed_to(
    *, mode: str, is_replaced: bool, crew: Crew, tmp_path: Path
) -> None:
    """Another is what is seen where a file system was mounted, once that is lost."""
    (tmp_path / "run").mkdir()
    settings = settings_for(tmp_path / "run", mode)
    crew.call(functools.partial(save_while_the_folder_goes, is_replaced=is_replaced), settings)
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert committed_steps(settings) == [20]


def save_into_another_folder(job: Job, settings: TrainerSettings) -> None:
    parts = parts_of(job, settings)
    root = settings.run_directory / "checkpoints"
    job.everyone(True)
    if job.rank == 0:
        root.rename(root.with_name("away"))
        root.mkdir()
    job.everyone(True)
    parts.save(job, 10)
    parts.checkpointer.wait()
    parts.close()


def test_nothing_is_written_to_another_folder_than_at_the_start(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async")
    crew.call(save_into_another_folder, settings)
    root = tmp_path / "checkpoints"
    reason = f"{root}: is not the folder that it was; its file system is lost"
    assert failures(settings) == [(0, 10, reason), (1, 10, reason)]
    assert list(root.iterdir()) == []


def save_with_little_room(job: Job, settings: TrainerSettings) -> tuple[int, int, str]:
    """At step 10 too little is free for what both ranks save, on rank 1's word alone."""
    parts = parts_of(job, settings)
    needed = 2 * 3 * 4 * (257 * 8 + 8 * 3 + 3 + 3)  # about: both ranks, three float32 a value
    real = layout.free_bytes
    if job.rank == 1:
        layout.free_bytes = lambda folder: real(folder) and needed // 4
    try:
        parts.save(job, 10)
        parts.checkpointer.wait()
    finally:
        layout.free_bytes = real
    after_first = parts.checkpointer.committed_step
    parts.save(job, 20)
    parts.checkpointer.wait()
    parts.close()
    return after_first, parts.checkpointer.committed_step, parts.checkpointer.last_failure


def test_a_save_that_would_not_fit_is_dropped_on_all_ranks_before_a_byte_is_written(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async")
    first, second = crew.call(save_with_little_room, settings)
    assert (first[:2], second[:2]) == ((0, 20), (0, 20))
    assert first[2] == "another rank has no room or no time, or cannot make the folder"
    assert second[2] == f"{tmp_path}/checkpoints: a save needs 1.1 MB and 0.0 MB are free"
    assert committed_steps(settings) == [20]


def save_beside_debris(job: Job, settings: TrainerSettings) -> list[str]:
    """What is left once a save found room only by what a dead attempt had left behind."""
    parts = parts_of(job, settings, attempt=2)
    debris = tmp_debris(settings)
    real = layout.free_bytes
    layout.free_bytes = lambda folder: 0 if debris.exists() else real(folder)
    try:
        for step in (10, 20):  # rank 1 may look before rank 0 has made room for the first
            parts.save(job, step)
            parts.checkpointer.wait()
    finally:
        layout.free_bytes = real
        parts.close()
    return sorted(path.name for path in debris.parent.iterdir())


def tmp_debris(settings: TrainerSettings) -> Path:
    return settings.run_directory / "checkpoints" / folder_name(90, 1)


def test_what_a_dead_attempt_left_makes_room_for_the_next(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    tmp_debris(settings).mkdir(parents=True)
    crew.call(save_beside_debris, settings)
    assert not tmp_debris(settings).exists()
    assert 20 in committed_steps(settings)


def commit_though_old_ones_cannot_go(job: Job, settings: TrainerSettings) -> list[str]:
    """The warnings of a run that keeps one checkpoint and cannot delete the one before."""
    parts, messages = parts_of(job, settings), Messages()

    def refuse(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    logging.getLogger("trainer").addHandler(messages)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deletions, "sync_folder", refuse)
            for step in (10, 20):
                parts.save(job, step)
                parts.checkpointer.wait()
            parts.checkpointer.wait_for_deletions()
    finally:
        logging.getLogger("trainer").removeHandler(messages)
        parts.close()
    return messages.texts


def test_a_commit_stands_though_old_checkpoints_cannot_be_deleted(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, checkpoint={"keep_latest": 1})
    old = tmp_path / "checkpoints" / folder_name(10, 1)
    warnings = crew.call(commit_though_old_ones_cannot_go, settings)
    assert warnings == [[f"{old} could not be deleted: [Errno 30] Read-only file system"], []]
    assert (old / "__0_0.distcp").exists()
    assert committed_steps(settings) == [20]
    assert failures(settings) == []
