"""The newest valid checkpoint is restored, whole; what cannot be used is named with the reason."""

import os
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from tests.trainer.checkpoints import (
    committed_steps,
    failures,
    parts_of,
    refusal,
    restore,
    save,
    settings_for,
    shards_after,
    warnings_at_restore,
)
from tests.trainer.ranks import Crew
from trainer.checkpoint.layout import committed, folder_name
from trainer.distributed import Job
from trainer.settings import TrainerSettings
from trainer.state import local_shard

pytestmark = pytest.mark.distributed

CPU = torch.device("cpu")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_newest_checkpoint_is_restored_bit_for_bit(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew.call(save, settings, 10, 20)
    assert crew.call(restore, settings) == [(20, True)] * 2
    assert failures(settings) == []


def test_a_run_without_checkpoints_starts_from_the_beginning(crew: Crew, tmp_path: Path) -> None:
    assert crew.call(restore, settings_for(tmp_path)) == [(0, True)] * 2


def test_one_rank_goes_on_from_what_two_have_saved(
    crew: Crew, tmp_path: Path, mesh: DeviceMesh
) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10)
    alone = Job(rank=0, world_size=1, device=CPU, mesh=mesh)
    parts = parts_of(alone, settings, attempt=2)
    with closing(parts):
        assert parts.checkpointer.restore() == 10
    first, second = crew.call(shards_after, 10)
    for name, tensor in parts.state.tensors().items():
        expected = [torch.from_numpy(first[name]), torch.from_numpy(second[name])]
        whole = expected[0] if name.endswith(".step") else torch.cat(expected)
        assert torch.equal(local_shard(tensor), whole), name


def truncate_newest(settings: TrainerSettings) -> str:
    """Its name, once the file of rank 1 is cut short."""
    newest = committed(settings.run_directory / "checkpoints")[0].path
    os.truncate(newest / "__1_0.distcp", 1000)
    return newest.name


def test_a_truncated_checkpoint_is_passed_over_for_the_one_before(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10, 20)
    name = truncate_newest(settings)
    assert crew.call(restore, settings) == [(10, True)] * 2
    (warning,), _ = crew.call(warnings_at_restore, settings)
    assert warning.startswith(f"Passed over checkpoint {name}: __1_0.distcp has 1000 of")


def test_when_all_are_damaged_each_is_named_with_the_reason(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10, 20)
    newest = truncate_newest(settings)
    oldest = tmp_path / "checkpoints" / folder_name(10, 1)
    (oldest / ".metadata").unlink()
    first, second = crew.call(refusal, settings)
    assert first == second
    assert f"{newest}: __1_0.distcp has 1000 of" in first
    assert f"{oldest.name}: .metadata is missing" in first
    assert "give the run a new id to start over" in first


def test_a_checkpoint_of_other_settings_is_refused_by_their_name(
    crew: Crew, tmp_path: Path
) -> None:
    crew.call(save, settings_for(tmp_path), 10)
    changed = settings_for(tmp_path, data={"seed": 1}, model={"activation_checkpointing": True})
    reason, _ = crew.call(refusal, changed)
    assert "its settings differ: data.seed 0 is now 1" in reason
    assert "activation_checkpointing" not in reason


def test_only_the_newest_are_kept(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, checkpoint={"keep_latest": 2})
    crew.call(save, settings, 10, 20, 30)
    assert committed_steps(settings) == [30, 20]


@pytest.mark.parametrize(("mode", "expected"), [("sync", [10, 20, 25]), ("none", [])])
def test_saves_are_due_at_each_interval_and_at_the_end(
    mode: str, expected: list[int], tmp_path: Path, mesh: DeviceMesh
) -> None:
    settings = settings_for(tmp_path, mode).model_copy(update={"max_steps": 25})
    alone = Job(rank=0, world_size=1, device=CPU, mesh=mesh)
    parts = parts_of(alone, settings)
    with closing(parts):
        assert [step for step in range(1, 26) if parts.checkpointer.due(step)] == expected
