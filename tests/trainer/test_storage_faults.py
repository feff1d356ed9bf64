"""A full disk costs one save, and a damaged checkpoint is passed over for the one before."""

from pathlib import Path

import pytest

from tests.trainer.checkpoints import (
    committed_steps,
    failures,
    parts_of,
    restore,
    save,
    settings_for,
    warnings_at_restore,
)
from tests.trainer.ranks import Crew
from trainer.checkpoint.layout import Checkpoint, CommitRecord, FileRecord, ShardFormat, folder_name
from trainer.distributed import Job
from trainer.faults.plan import Fault
from trainer.faults.settings import FaultKind
from trainer.faults.storage import (
    checkpoint_to_corrupt,
    corrupt_the_newest,
    fill_the_next_save,
    next_save,
)
from trainer.settings import CheckpointSettings, TrainerSettings


def save_thrice_and_fill_the_second(job: Job, settings: TrainerSettings, victim: int) -> None:
    parts = parts_of(job, settings)
    parts.save(job, 10)  # in flight when the disk fills up
    if job.rank == victim:
        for _ in range(2):
            fill_the_next_save(settings, rank=job.rank, attempt=1, step=13)
    parts.checkpointer.wait()
    for step in (20, 30):
        parts.save(job, step)
        parts.checkpointer.wait()
    parts.checkpointer.wait_for_deletions()
    parts.close()


@pytest.mark.distributed
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("mode", ["sync", "async", "async_local_shards"])
def test_a_disk_that_is_full_for_one_rank_costs_the_next_save_and_no_other(
    mode: str, victim: int, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(save_thrice_and_fill_the_second, settings, victim)
    failed = failures(settings)
    assert [(rank, step) for rank, step, _ in failed] == [(0, 20), (1, 20)]
    assert "No space left on device" in failed[victim][2]
    assert committed_steps(settings) == [30, 10]
    assert not (tmp_path / "checkpoints" / folder_name(20, 1)).exists()
    assert crew.call(restore, settings) == [(30, True), (30, True)]


def fill_and_save_the_same_step_twice(job: Job, settings: TrainerSettings) -> None:
    parts = parts_of(job, settings)
    if job.rank == 1:
        fill_the_next_save(settings, rank=1, attempt=1, step=95)
    for _ in range(2):  # as the last step of a run is
        parts.save(job, 100)
        parts.checkpointer.wait()
    parts.close()


@pytest.mark.distributed
def test_the_last_save_is_made_again_where_the_disk_was_full(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(fill_and_save_the_same_step_twice, settings)
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 100), (1, 100)]
    assert committed_steps(settings) == [100]


def test_without_saves_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    fill_the_next_save(settings_for(tmp_path, "none"), rank=0, attempt=1, step=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("step", "expected"), [(1, 10), (10, 10), (11, 20), (91, 95), (95, 95)])
def test_the_next_save_is_at_the_interval_or_the_last_step(step: int, expected: int) -> None:
    checkpoint = CheckpointSettings(interval_steps=10)
    assert next_save(checkpoint, step=step, max_steps=95) == expected


def corrupting(settings: TrainerSettings, name: str) -> None:
    """As the injector has it: the fault's file is there before it happens."""
    fault = Fault(name=name, step=25, rank=1, kind=FaultKind.CORRUPT_CHECKPOINT)
    (settings.run_directory / "faults").mkdir(exist_ok=True)
    (settings.run_directory / "faults" / name).touch()
    corrupt_the_newest(settings, fault)


@pytest.mark.distributed
@pytest.mark.parametrize("mode", ["async", "async_local_shards"])
def test_a_corrupted_checkpoint_is_passed_over_for_the_one_before(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(save, settings, 10, 20)
    corrupting(settings, "1-corrupt")
    assert crew.call(restore, settings) == [(10, True), (10, True)]
    (warning,) = crew.call(warnings_at_restore, settings)[0]
    assert warning.startswith(f"Passed over checkpoint {folder_name(20, 1)}: ")
    assert warning.endswith("has a wrong checksum")


@pytest.mark.distributed
def test_two_such_faults_neither_mend_a_checkpoint_nor_take_the_last(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10, 20)
    for name in ("1-corrupt", "2-corrupt", "3-corrupt"):
        corrupting(settings, name)
    assert crew.call(restore, settings) == [(10, True), (10, True)]


@pytest.mark.distributed
def test_the_only_checkpoint_is_spared(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10)
    corrupting(settings, "1-corrupt")
    assert crew.call(restore, settings) == [(10, True), (10, True)]


def test_without_a_checkpoint_nothing_is_corrupted(tmp_path: Path) -> None:
    corrupting(settings_for(tmp_path), "1-corrupt")
    assert (tmp_path / "faults" / "1-corrupt").read_text() == ""


def checkpoint(step: int, run: str = "mine") -> Checkpoint:
    record = CommitRecord(
        step=step,
        attempt=1,
        world_size=2,
        fingerprint={},
        files=(FileRecord("__0_0.distcp", 1, 1),),
        format=ShardFormat.DCP,
        run=run,
        max_steps=100,
    )
    return Checkpoint(Path(folder_name(step, 1)), record)


@pytest.mark.parametrize(
    ("found", "keep_latest", "corrupted", "expected"),
    [
        pytest.param([30, 20, 10], 3, [], 30, id="the newest"),
        pytest.param([30, 20, 10], 3, [30], 20, id="the newest that is whole"),
        pytest.param([30, 20, 10], 3, [30, 20], None, id="never the last that is whole"),
        pytest.param([30, 20], 1, [], None, id="the second of those kept may be going"),
    ],
)
def test_it_takes_the_newest_that_leaves_another_to_go_on_from(
    *, found: list[int], keep_latest: int, corrupted: list[int], expected: int | None
) -> None:
    chosen = checkpoint_to_corrupt(
        [checkpoint(step) for step in found],
        run="mine",
        keep_latest=keep_latest,
        corrupted=frozenset(folder_name(step, 1) for step in corrupted),
    )
    assert (chosen and chosen.record.step) == expected


def test_another_runs_checkpoint_is_nothing_to_go_on_from() -> None:
    found = [checkpoint(30), checkpoint(20, run="theirs")]
    assert checkpoint_to_corrupt(found, run="mine", keep_latest=3, corrupted=frozenset()) is None
