"""A restore that goes wrong: with other settings, unreadable files, or after it was replaced."""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.trainer.checkpoints import (
    Messages,
    failures,
    parts_of,
    refusal,
    restore,
    settings_for,
    warnings_at_restore,
)
from tests.trainer.ranks import Crew
from tests.trainer.test_restore import at, resuming, saves
from trainer.attempts import claim_attempt
from trainer.checkpoint import layout
from trainer.checkpoint.layout import committed, folder_name
from trainer.checkpoint.restore import Found
from trainer.distributed import Job
from trainer.settings import TrainerSettings


def restore_with_other_settings(
    job: Job, settings: TrainerSettings, of_rank_one: TrainerSettings
) -> tuple[int, bool]:
    return restore(job, of_rank_one if job.rank == 1 else settings)


@pytest.mark.distributed
@pytest.mark.parametrize("mode", ["sync", "async_local_shards"])
def test_what_rank_0_wishes_all_ranks_restore(mode: str, crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(saves, settings, 1, 10, 20)
    answers = crew.call(restore_with_other_settings, settings, resuming(settings, 10))
    assert answers == [(20, True)] * 2


def make_unreadable(path: Path) -> None:
    """Reading it fails with EISDIR, as it would with EIO, also for root."""
    path.unlink()
    path.mkdir()


@pytest.mark.distributed
def test_a_file_that_cannot_be_read_bars_no_older_checkpoint(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10, 20)
    make_unreadable(at(settings, 20) / "__1_0.distcp")
    for warnings in crew.call(warnings_at_restore, settings):
        assert len(warnings) == 1
        assert f"{folder_name(20, 1)}: cannot be read: [Errno 21]" in warnings[0]
    assert crew.call(restore, settings) == [(10, True)] * 2


def failure_at_restore(job: Job, settings: TrainerSettings, *, is_gone: bool) -> str:
    """The words of the ``OSError`` that a rank ends with, which another attempt may not meet."""
    parts = parts_of(job, settings, attempt=2)
    with closing(parts), pytest.MonkeyPatch.context() as patch:
        if is_gone and job.rank == 1:
            patch.setattr(os, "statvfs", _fail)
        try:
            parts.checkpointer.restore()
        except OSError as error:
            return str(error)
    return "restored"


def _fail(_: Path) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("is_gone", "words"), [(True, "Input/output error"), (False, "no checkpoint can be restored")]
)
def test_storage_that_may_answer_again_ends_no_run_for_good(
    is_gone: bool, words: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10)
    make_unreadable(at(settings, 10) / "__1_0.distcp")
    first, second = crew.call(partial(failure_at_restore, is_gone=is_gone), settings)
    assert first == second
    assert words in first


def log_of_restore(job: Job, settings: TrainerSettings) -> list[str]:
    logger, messages = logging.getLogger("trainer"), Messages()
    messages.setLevel(logging.INFO)
    level = logger.level
    logger.addHandler(messages)
    logger.setLevel(logging.INFO)
    try:
        restore(job, settings)
    finally:
        logger.removeHandler(messages)
        logger.setLevel(level)
    return messages.texts


@pytest.mark.distributed
def test_a_restore_says_what_it_goes_on_from_and_that_a_wish_was_obeyed(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    back = resuming(settings, 10)
    crew.call(saves, settings, 1, 10, 20)
    assert "Going on from step 10 (attempt 1)" in crew.call(log_of_restore, back)[0]
    crew.call(saves, back, 3, 20)
    expected = "Going on from step 20 (attempt 3); checkpoint.resume_step 10 was obeyed before"
    assert expected in crew.call(log_of_restore, back)[0]


@pytest.mark.distributed
def test_a_wish_for_shards_of_other_ranks_is_refused_with_what_exists(
    crew: Crew, crew_of: Callable[[int], Crew], tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, "async_local_shards")
    crew.call(saves, settings, 1, 10, 20)
    (reason,) = crew_of(1).call(refusal, resuming(settings, 10))
    assert "saved by 2 ranks as local shards" in reason
    assert "step 20 of attempt 1 (for 2 ranks alone, not verified)" in reason


def committed_step_after_restore(job: Job, settings: TrainerSettings) -> int:
    parts = parts_of(job, settings, attempt=2)
    with closing(parts):
        parts.checkpointer.restore()
        return parts.checkpointer.committed_step


@pytest.mark.distributed
def test_what_was_restored_need_not_be_saved_again(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10)
    assert crew.call(committed_step_after_restore, settings) == [10, 10]


@pytest.mark.distributed
def test_an_attempt_that_was_replaced_commits_and_deletes_no_more(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, checkpoint={"keep_latest": 1})
    crew.call(saves, settings, 1, 10)
    assert [claim_attempt(tmp_path) for _ in range(2)] == [2, 3]
    crew.call(saves, settings, 1, 20)
    assert [c.record.step for c in committed(tmp_path / "checkpoints")] == [10]
    assert "attempt 3 has begun, and this one may commit no more" in failures(settings)[0][2]


def durable_then_restore(job: Job, settings: TrainerSettings) -> tuple[object, ...]:
    """What memory is told of the checkpoints, what is restored, and how often they were listed."""
    listings: list[Path] = []
    parts = parts_of(job, settings, attempt=2)
    with closing(parts), pytest.MonkeyPatch.context() as patch:
        examine = layout.examine

        def counted(root: Path) -> Found:
            listings.append(root)
            return examine(root)

        patch.setattr(layout, "examine", counted)
        durable = parts.checkpointer.durable()
        assert durable.newest_valid is not None
        told = durable.newest, durable.newest_valid(), parts.checkpointer.committed_step
        return *told, parts.checkpointer.restore(), len(listings)


@pytest.mark.distributed
def test_memory_is_told_which_checkpoint_is_undamaged_and_they_are_listed_once(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10, 20)
    os.truncate(at(settings, 20) / "__1_0.distcp", 1000)
    expected = (1, 20), (1, 10), 10, 10
    assert crew.call(durable_then_restore, settings) == [(*expected, 1), (*expected, 0)]
