"""Deletions beside the step loop: nobody waits for one unasked, and none outlives its attempt."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.trainer.ranks import Crew
from tests.trainer.saved_folders import SHARD, begin, commit
from trainer.checkpoint import deletions as its_module
from trainer.checkpoint import layout
from trainer.checkpoint.deletions import Deletions, delete
from trainer.checkpoint.layout import folder_name
from trainer.distributed import Job
from trainer.settings import TrainerSettings


@contextmanager
def storage_that_hangs() -> Iterator[threading.Event]:
    """Every deletion of a file waits for the event, for 30 s at most."""
    answers, real = threading.Event(), os.unlink

    def unlink(*arguments: object, **options: object) -> None:
        assert answers.wait(30)
        real(*arguments, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        try:
            yield answers
        finally:
            answers.set()


def num_threads() -> int:
    return sum(thread.name == "deletions" for thread in threading.enumerate())


def test_many_folders_go_one_after_the_other_and_the_thread_with_the_last(tmp_path: Path) -> None:
    folders = [commit(tmp_path, step=step) for step in range(1, 6)]
    deletions = Deletions()
    with storage_that_hangs() as answers:
        deletions.add(folders[:3])
        deletions.add(folders[2:])
        assert num_threads() == 1
        assert all(folder in deletions for folder in folders)
        assert not deletions.is_done()
        answers.set()
        deletions.close()
    assert num_threads() == 0


def test_what_is_added_after_the_last_has_gone_goes_too(tmp_path: Path) -> None:
    deletions = Deletions()
    for step in range(1, 20):
        folder = commit(tmp_path, step=step)
        deletions.add([folder])
        while not deletions.is_done():
            pass
        assert not folder.exists()
    assert num_threads() <= 1
    deletions.close()
    assert num_threads() == 0


def test_an_attempt_that_ends_leaves_the_files_that_are_not_deleted_yet(tmp_path: Path) -> None:
    folders = [commit(tmp_path, step=step) for step in (10, 20)]
    deletions = Deletions()
    with storage_that_hangs() as answers:
        deletions.add(folders)
        threading.Timer(0.05, answers.set).start()
        deletions.close()
    assert num_threads() == 0
    assert not (folders[0] / layout.COMMIT_RECORD).exists()
    assert [path.name for path in folders[0].iterdir()] == ["__0_0.distcp"]
    assert layout.committed(tmp_path)[0].path == folders[1]


def test_storage_that_does_not_answer_holds_the_end_of_an_attempt_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(its_module, "_FAREWELL_SECONDS", 0.01)
    deletions = Deletions()
    with storage_that_hangs():
        deletions.add([commit(tmp_path, step=10)])
        deletions.close()
        assert num_threads() == 1
    assert "a deletion outlives its attempt" in caplog.text
    deletions.close()


def commit_while_deletions_hang(job: Job, settings: TrainerSettings) -> tuple[list[int], int]:
    """The steps committed, as they come, while not one file can be deleted."""
    parts = parts_of(job, settings)
    steps = []
    with storage_that_hangs() as answers:
        for step in (10, 20, 30):
            parts.save(job, step)
            parts.checkpointer.wait()
            steps.append(parts.checkpointer.committed_step)
        answers.set()
        parts.checkpointer.wait_for_deletions()
    parts.close()
    return steps, num_threads()


@pytest.mark.distributed
def test_training_waits_for_no_deletion(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "async", checkpoint={"keep_latest": 1})
    assert crew.call(commit_while_deletions_hang, settings) == [([10, 20, 30], 0)] * 2
    assert committed_steps(settings) == [30]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [folder_name(30, 1)]


def save_where_room_comes_by_deletion(job: Job, settings: TrainerSettings) -> int:
    """Step 30 fits once the checkpoint of step 10 is gone, which takes a while."""
    parts = parts_of(job, settings)
    old = settings.run_directory / "checkpoints" / folder_name(10, 1)
    real = layout.free_bytes
    with storage_that_hangs() as answers:
        for step in (10, 20):
            parts.save(job, step)
            parts.checkpointer.wait()
        layout.free_bytes = lambda folder: 0 if old.exists() else real(folder)
        threading.Timer(0.2, answers.set).start()
        try:
            parts.save(job, 30)
            parts.checkpointer.wait()
        finally:
            layout.free_bytes = real
    parts.close()
    return parts.checkpointer.committed_step


@pytest.mark.distributed
def test_a_save_that_needs_the_room_waits_for_the_deletion(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, checkpoint={"keep_latest": 1})
    assert crew.call(save_where_room_comes_by_deletion, settings) == [30, 30]
    assert failures(settings) == []


def save_the_dropped_step_again(job: Job, settings: TrainerSettings) -> int:
    """Step 10 cannot be committed at first, and is saved again while its debris still goes."""
    parts = parts_of(job, settings)
    with storage_that_hangs() as answers:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layout, "commit", _refuse)
            parts.save(job, 10)
            parts.checkpointer.wait()
        threading.Timer(0.2, answers.set).start()
        parts.save(job, 10)
        parts.checkpointer.wait()
    parts.checkpointer.wait_for_deletions()
    parts.close()
    return parts.checkpointer.committed_step


def _refuse(*_: object) -> None:
    raise OSError("not now")


@pytest.mark.distributed
def test_a_step_is_saved_again_only_once_its_debris_is_gone(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert crew.call(save_the_dropped_step_again, settings) == [10, 10]
    assert crew.call(restore, settings) == [(10, True)] * 2


@pytest.mark.distributed
def test_what_an_attempt_left_half_deleted_goes_at_the_next_commit(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, checkpoint={"keep_latest": 1})
    half = commit(tmp_path / "checkpoints", step=5, attempt=0)
    delete(half, should_stop=lambda: True)
    crew.call(save, settings, 10)
    assert not half.exists()


def test_what_is_committed_before_its_turn_comes_stays(tmp_path: Path) -> None:
    first = commit(tmp_path, step=10)
    late = begin(tmp_path, step=20)
    deletions = Deletions()
    with storage_that_hangs() as answers:
        deletions.add([first])
        deletions.add([late], unless_committed=True)
        (late / layout.COMMIT_RECORD).write_text("by another process, meanwhile")
        answers.set()
        while not deletions.is_done():
            pass
    deletions.close()
    assert not first.exists()
    assert (late / SHARD).exists()


def test_an_attempt_that_was_replaced_deletes_nothing(tmp_path: Path) -> None:
    folder = commit(tmp_path, step=10)
    deletions = Deletions(is_newest_attempt=lambda: False)
    deletions.add([folder])
    while not deletions.is_done():
        pass
    deletions.close()
    assert layout.committed(tmp_path)[0].path == folder
