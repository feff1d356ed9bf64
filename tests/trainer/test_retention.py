"""What a clean-up deletes: never what is to be kept, wherever it is cut short."""

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.saved_folders import SHARD, begin, clean_up, commit, damage_of, flip_bit, names
from trainer.checkpoint import layout, retention
from trainer.checkpoint.deletions import delete


def test_the_newest_are_kept_and_their_debris_is_not(tmp_path: Path) -> None:
    for step in (20, 40, 60):
        commit(tmp_path, step=step)
    begin(tmp_path, step=70, attempt=1)
    begin(tmp_path, step=80, attempt=2)
    commit(tmp_path, step=90, attempt=2)
    clean_up(tmp_path, keep_latest=2, attempt=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000060-attempt-0001",
        "step-00000090-attempt-0002",
    ]


def test_an_attempt_keeps_its_commit_though_damaged_ones_have_later_steps(tmp_path: Path) -> None:
    for step in (60, 80):
        os.truncate(commit(tmp_path, step=step, attempt=1) / SHARD, 0)
    commit(tmp_path, step=50, attempt=2)
    clean_up(tmp_path, keep_latest=1, attempt=2)
    assert names(tmp_path) == ["step-00000050-attempt-0002"]


def test_a_file_with_the_name_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    intruder = tmp_path / layout.folder_name(20, 1)
    intruder.write_text("not a folder")
    commit(tmp_path, step=40, attempt=2)
    clean_up(tmp_path, keep_latest=1, attempt=2)
    assert intruder.read_text() == "not a folder"


@contextmanager
def without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@dataclass(frozen=True)
class Save:
    step: int
    attempt: int
    fate: str


def step_and_attempt(save: Save) -> tuple[int, int]:
    return save.step, save.attempt


a_save = st.builds(
    Save,
    step=st.integers(1, 6),
    attempt=st.integers(1, 4),
    fate=st.sampled_from(["committed", "damaged", "torn record", "debris"]),
)
saves = st.lists(a_save, unique_by=step_and_attempt, max_size=12)


def make(root: Path, save: Save) -> Path:
    if save.fate == "debris":
        return begin(root, step=save.step, attempt=save.attempt)
    path = commit(root, step=save.step, attempt=save.attempt)
    if save.fate == "damaged":
        flip_bit(path / SHARD, 5)
    if save.fate == "torn record":
        os.truncate(path / layout.COMMIT_RECORD, 30)
    return path


@given(saves=saves, keep_latest=st.integers(1, 4))
@settings(deadline=None)
def test_a_clean_up_takes_neither_the_last_valid_checkpoint_nor_what_is_foreign(
    saves: list[Save], keep_latest: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, without_waiting_for_the_disk():
        root = Path(folder)
        paths = {save: make(root, save) for save in saves}
        attempt = max((save.attempt for save in saves), default=1)
        last = max((save.step for save in saves if save.attempt == attempt), default=0) + 1
        newest = commit(root, step=last, attempt=attempt)
        foreign = commit(root, step=1, folder="moved away by hand")
        clean_up(root, keep_latest=keep_latest, attempt=attempt)

        left = layout.committed(root)
        assert {newest, foreign} <= {c.path for c in left if damage_of(c) is None}
        assert len(left) <= keep_latest + 1
        readable = [save for save in saves if save.fate in ("committed", "damaged")]
        assert len(left) - 1 >= min(keep_latest, len(readable) + 1) - 1
        for save, path in paths.items():
            if save.fate == "debris":
                assert not path.exists()
            if save.fate == "torn record":
                assert path.exists()


class Crash(BaseException):
    """The process is gone: nothing of it handles this."""


@contextmanager
def crash_at(call: int) -> Iterator[list[str]]:
    """Crash instead of the ``call``-th deletion, or right after it if negative."""
    calls: list[str] = []

    def wrapped(real: Callable[..., None]) -> Callable[..., None]:
        def delete(path: str, **options: Any) -> None:
            calls.append(str(path))
            if len(calls) == call:
                raise Crash
            real(path, **options)
            if len(calls) == -call:
                raise Crash

        return delete

    gc.collect()  # a forgotten temporary folder deletes itself, which is not meant here
    with pytest.MonkeyPatch.context() as patch:
        # As the module has them: shutil and pathlib look them up at each call.
        patch.setattr(os, "unlink", wrapped(os.unlink))
        patch.setattr(os, "rmdir", wrapped(os.rmdir))
        yield calls


def valid(root: Path) -> set[Path]:
    return {c.path for c in layout.committed(root) if damage_of(c) is None}


@given(
    saves=st.lists(a_save, unique_by=step_and_attempt, max_size=4), keep_latest=st.integers(1, 3)
)
@settings(max_examples=5, deadline=None)
def test_a_clean_up_that_is_cut_short_anywhere_leaves_what_is_kept_and_can_be_done_again(
    saves: list[Save], keep_latest: int
) -> None:
    cut, is_done = 0, False
    while not is_done:
        cut += 1
        for call in (cut, -cut):
            with tempfile.TemporaryDirectory() as folder, without_waiting_for_the_disk():
                root = Path(folder)
                for save in saves:
                    make(root, save)
                newest = commit(root, step=9, attempt=5)
                before = valid(root)

                with crash_at(call) as calls:
                    try:
                        clean_up(root, keep_latest=keep_latest, attempt=5)
                    except Crash:
                        assert newest in valid(root) <= before
                    else:
                        is_done = True
                        assert len(calls) < cut
                clean_up(root, keep_latest=keep_latest, attempt=5)
                assert newest in valid(root)
                assert len(layout.committed(root)) <= keep_latest


def test_old_checkpoints_go_only_after_their_records(tmp_path: Path) -> None:
    old = commit(tmp_path, step=20)
    commit(tmp_path, step=40)
    with crash_at(-1) as calls, pytest.raises(Crash):
        clean_up(tmp_path, keep_latest=1, attempt=1)
    assert calls == [str(old / layout.COMMIT_RECORD)]
    assert names(tmp_path) == ["step-00000040-attempt-0001"]


def test_another_runs_checkpoint_is_neither_deleted_nor_counted(tmp_path: Path) -> None:
    commit(tmp_path, step=99, attempt=8, run="another")
    for step in (20, 40):
        commit(tmp_path, step=step, attempt=9)
    clean_up(tmp_path, keep_latest=1, attempt=9)
    assert names(tmp_path) == ["step-00000040-attempt-0009", "step-00000099-attempt-0008"]


def test_debris_of_attempts_before_makes_room_and_nothing_else_does(tmp_path: Path) -> None:
    begin(tmp_path, step=30, attempt=1)
    kept = [commit(tmp_path, step=20, attempt=1), begin(tmp_path, step=40, attempt=2)]
    os.truncate(commit(tmp_path, step=25, attempt=1) / layout.COMMIT_RECORD, 10)
    for folder in retention.debris(retention.find(tmp_path), before=(2, 40)):
        delete(folder)
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / layout.folder_name(25, 1)])


def test_a_step_of_ten_digits_is_cleaned_up_like_any_other(tmp_path: Path) -> None:
    for step in (1_000_000_000, 1_000_000_001):
        commit(tmp_path, step=step)
    clean_up(tmp_path, keep_latest=1, attempt=1)
    assert names(tmp_path) == ["step-1000000001-attempt-0001"]


def test_a_deletion_that_is_told_to_stop_leaves_whole_files_and_no_record(tmp_path: Path) -> None:
    old = commit(tmp_path, step=20)
    delete(old, should_stop=lambda: True)
    assert [path.name for path in old.iterdir()] == [SHARD]
    assert names(tmp_path) == []
