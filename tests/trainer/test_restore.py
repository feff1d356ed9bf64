"""Which checkpoint a run goes on from: chosen by the records, by all ranks, never unawares."""

import os
import pickle
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoints import parts_of, refusal, restore, settings_for, warnings_at_restore
from tests.trainer.ranks import Crew
from trainer.checkpoint import layout
from trainer.checkpoint.layout import Checkpoint, CommitRecord, ShardFormat, committed, folder_name
from trainer.checkpoint.order import in_turn
from trainer.distributed import Job
from trainer.settings import TrainerSettings


def record(
    step: int, attempt: int, *, run: str = "a", went_back_to: int | None = None
) -> Checkpoint:
    record = CommitRecord(step, attempt, 2, {}, (), ShardFormat.DCP, run, 100, went_back_to)
    return Checkpoint(Path(folder_name(step, attempt)), record)


def turns(*found: Checkpoint, resume_step: int | None) -> list[tuple[int, int]]:
    """Attempt and step of the checkpoints of run a that are tried, in turn."""
    turn = in_turn(found, run="a", resume_step=resume_step)
    return [(checkpoint.record.attempt, checkpoint.record.step) for checkpoint in turn]


def test_without_a_wish_all_are_tried_newest_first() -> None:
    assert turns(record(20, 2), record(60, 1), record(40, 1), resume_step=None) == [
        (2, 20),
        (1, 60),
        (1, 40),
    ]


def test_a_wish_is_that_step_alone_of_the_newest_attempt_that_has_it() -> None:
    found = [record(60, 2), record(40, 2), record(40, 1), record(20, 1)]
    assert turns(*found, resume_step=40) == [(2, 40), (1, 40)]
    assert turns(*found, resume_step=30) == []


def test_a_wish_once_obeyed_is_not_obeyed_again() -> None:
    found = [record(50, 3, went_back_to=20), record(30, 2, went_back_to=20)]
    before = [record(40, 1), record(20, 1)]
    assert turns(*found, *before, resume_step=20) == [(3, 50), (2, 30), (1, 20)]


def test_a_new_wish_is_obeyed_after_an_old_one() -> None:
    found = [record(50, 2, went_back_to=20), record(30, 2, went_back_to=20), record(20, 1)]
    assert turns(*found, resume_step=30) == [(2, 30)]


def test_a_wish_renewed_after_the_run_went_on_without_it_is_obeyed_anew() -> None:
    found = [record(70, 3), record(50, 2, went_back_to=20), record(20, 1)]
    assert turns(*found, resume_step=20) == [(1, 20)]


def test_another_run_counts_only_for_the_step_asked_for_and_after_our_own() -> None:
    found = [record(20, 9, run="b", went_back_to=20), record(30, 9, run="b"), record(20, 1)]
    assert turns(*found, resume_step=20) == [(1, 20), (9, 20)]


def saves(job: Job, settings: TrainerSettings, attempt: int, *steps: int) -> None:
    parts = parts_of(job, settings, attempt=attempt)
    with closing(parts):
        for step in steps:
            parts.save(job, step)
            parts.checkpointer.wait()
        parts.checkpointer.wait_for_deletions()


def at(settings: TrainerSettings, step: int, attempt: int = 1) -> Path:
    return settings.run_directory / "checkpoints" / folder_name(step, attempt)


def resuming(settings: TrainerSettings, step: int) -> TrainerSettings:
    checkpoint = settings.checkpoint.model_copy(update={"resume_step": step})
    return settings.model_copy(update={"checkpoint": checkpoint})


@pytest.mark.distributed
def test_a_run_goes_back_once_and_then_on(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    back = resuming(settings, 10)
    crew.call(saves, settings, 1, 10, 20, 30)
    assert crew.call(restore, back) == [(10, True)] * 2
    assert crew.call(restore, back) == [(10, True)] * 2  # nothing was saved since
    crew.call(saves, back, 3, 20)
    assert crew.call(restore, back) == [(20, True)] * 2
    assert committed(tmp_path / "checkpoints")[0].record.resume_step == 10
    assert crew.call(restore, settings) == [(20, True)] * 2  # the way back stays taken


@pytest.mark.distributed
def test_a_step_that_cannot_be_gone_back_to_is_refused_with_what_exists(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10, 20, 30)
    os.truncate(at(settings, 20) / "__1_0.distcp", 1000)
    os.truncate(at(settings, 10) / layout.COMMIT_RECORD, 50)
    first, second = crew.call(refusal, resuming(settings, 20))
    assert first == second
    assert first.startswith("checkpoint.resume_step 20: ")
    assert "step 30 of attempt 1 (valid), " in first
    assert "step 20 of attempt 1 (__1_0.distcp has 1000 of" in first
    assert f"{folder_name(10, 1)} ({layout.COMMIT_RECORD} is damaged)" in first


@pytest.mark.distributed
def test_a_step_is_refused_where_nothing_was_saved(crew: Crew, tmp_path: Path) -> None:
    first, _ = crew.call(refusal, resuming(settings_for(tmp_path), 20))
    assert "it has none at all" in first


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


class Proof:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def plant(checkpoint: Path, file: str, content: bytes) -> None:
    """Replace a file, and what the record says of it, as someone who knows the format would."""
    (checkpoint / file).write_bytes(content)
    ((_, old),) = [(c.path, c.record) for c in committed(checkpoint.parent) if c.path == checkpoint]
    files = tuple(layout.record_file(checkpoint / recorded.name) for recorded in old.files)
    layout.commit(checkpoint, replace(old, files=files))


def damage(checkpoint: Path, kind: str) -> None:
    match kind:
        case "truncated":
            os.truncate(checkpoint / "__1_0.distcp", 1000)
        case "bit flipped":
            flip_bit(checkpoint / "__0_0.distcp")
        case "metadata flipped":
            flip_bit(checkpoint / ".metadata")
        case "file missing":
            (checkpoint / "__1_0.distcp").unlink()
        case "torn record":
            os.truncate(checkpoint / layout.COMMIT_RECORD, 100)
        case "empty record":
            os.truncate(checkpoint / layout.COMMIT_RECORD, 0)
        case "planted code":
            proof = checkpoint.parent.parent / "proof"
            plant(checkpoint, ".metadata", pickle.dumps(Proof(proof)))


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("truncated", "__1_0.distcp has 1000 of"),
        ("bit flipped", "__0_0.distcp has a wrong checksum"),
        ("metadata flipped", ".metadata has a wrong checksum"),
        ("file missing", "__1_0.distcp is missing"),
        ("torn record", "COMMITTED.json is damaged"),
        ("empty record", "COMMITTED.json is damaged"),
        ("planted code", ".metadata names posix.mkdir, which no checkpoint needs"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(
    kind: str, reason: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10, 20)
    damage(at(settings, 20), kind)
    assert crew.call(restore, settings) == [(10, True)] * 2
    for warnings in crew.call(warnings_at_restore, settings):
        (warning,) = warnings
        assert warning.startswith(f"Passed over checkpoint {folder_name(20, 1)}: ")
        assert reason in warning
    assert not (tmp_path / "proof").exists()


@pytest.mark.distributed
def test_what_is_half_deleted_is_no_checkpoint_and_an_extra_file_no_harm(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10, 20, 30)
    (at(settings, 30) / layout.COMMIT_RECORD).unlink()
    (at(settings, 20) / "__7_0.distcp").write_text("of no rank")
    assert crew.call(restore, settings) == [(20, True)] * 2


@pytest.mark.distributed
def test_a_run_whose_only_record_is_torn_does_not_start_over(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(saves, settings, 1, 10)
    damage(at(settings, 10), "torn record")
    reason, _ = crew.call(refusal, settings)
    assert "COMMITTED.json is damaged" in reason


@pytest.mark.distributed
def test_a_run_that_only_holds_debris_says_that_it_starts_over(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    at(settings, 10).mkdir(parents=True)
    assert crew.call(restore, settings) == [(0, True)] * 2
    (warning,), none = crew.call(warnings_at_restore, settings)
    assert "none of them committed; starting over" in warning
    assert none == []


@pytest.mark.distributed
def test_a_checkpoint_of_another_run_is_taken_only_if_its_step_is_asked_for(
    crew: Crew, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = settings_for(tmp_path / "a"), settings_for(tmp_path / "b")
    crew.call(saves, first, 7, 40)
    crew.call(saves, second, 1, 10)
    shutil.copytree(at(first, 40, 7), at(second, 40, 7))
    assert crew.call(restore, second) == [(10, True)] * 2
    (warning,), _ = crew.call(warnings_at_restore, second)
    assert "it is of run 'a'; checkpoint.resume_step 40 would take it" in warning
    assert crew.call(restore, resuming(second, 40)) == [(40, True)] * 2


@pytest.mark.distributed
def test_the_copy_of_another_run_costs_none_of_our_own(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = settings_for(tmp_path / "a")
    second = settings_for(tmp_path / "b", checkpoint={"keep_latest": 1})
    crew.call(saves, first, 7, 40)
    (tmp_path / "b" / "checkpoints").mkdir()
    shutil.copytree(at(first, 40, 7), at(second, 40, 7))
    crew.call(saves, second, 8, 10, 20)
    assert sorted(path.name for path in (tmp_path / "b" / "checkpoints").iterdir()) == [
        folder_name(20, 8),
        folder_name(40, 7),
    ]
