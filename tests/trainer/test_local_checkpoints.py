"""Whole checkpoints of local shards: committed by all ranks or by none, and read by as many."""

import os
import signal
import time
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
    warnings_at_restore,
)
from tests.trainer.ranks import Crew, background_worker, kill, once_done, pid_of
from trainer.checkpoint import layout
from trainer.checkpoint.layout import ShardFormat, committed
from trainer.distributed import Job
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.distributed

MODE = "async_local_shards"


def test_what_was_saved_is_restored_on_every_rank(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, MODE)
    crew.call(save, settings, 10, 20)
    assert committed_steps(settings) == [20, 10]
    newest = committed(tmp_path / "checkpoints")[0]
    assert newest.record.format is ShardFormat.LOCAL_SHARDS
    assert [file.name for file in newest.record.files] == ["rank-0.pt", "rank-1.pt"]
    assert crew.call(restore, settings) == [(20, True)] * 2


def test_a_run_goes_on_in_another_mode_from_either_format(crew: Crew, tmp_path: Path) -> None:
    local, reshardable = settings_for(tmp_path, MODE), settings_for(tmp_path, "async")
    crew.call(save, local, 10)
    assert crew.call(restore, reshardable) == [(10, True)] * 2
    crew.call(save, reshardable, 20)
    assert crew.call(restore, local) == [(20, True)] * 2


def test_another_world_size_is_refused_unread_with_what_to_do(
    crew: Crew, tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(tmp_path, MODE)
    crew.call(save, settings, 10)
    alone = Job(rank=0, world_size=1, device=torch.device("cpu"), mesh=mesh)

    def read(*_: object) -> str:
        pytest.fail("files were read that nobody can use")

    monkeypatch.setattr(layout, "what_is_damaged", read)
    words = refusal(alone, settings)
    back = settings_for(tmp_path, MODE, checkpoint={"resume_step": 20})
    listing = refusal(alone, back)
    background_worker().kill()
    assert "step 10 of attempt 1 (for 2 ranks alone, not verified)" in listing
    assert "saved by 2 ranks as local shards" in words
    assert "1 run now; restart with 2 ranks" in words
    assert "checkpoint.mode=async" in words


@pytest.mark.parametrize("rank", [0, 1])
def test_one_ranks_damaged_file_makes_all_ranks_take_the_checkpoint_before(
    rank: int, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, MODE)
    crew.call(save, settings, 10, 20)
    file = committed(tmp_path / "checkpoints")[0].path / f"rank-{rank}.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    warnings, _ = crew.call(warnings_at_restore, settings)
    assert any(f"rank-{rank}.pt has a wrong checksum" in text for text in warnings)
    assert crew.call(restore, settings) == [(10, True)] * 2


def save_with_a_worker_that(job: Job, settings: TrainerSettings, fault: str) -> float:
    """How long the ranks wait at step 10, when rank 1's worker is dead or stopped; then step 20."""
    parts = parts_of(job, settings)
    with closing(parts):
        once_done(background_worker())
        if job.rank == 1:
            pid = pid_of(background_worker())
            os.kill(pid, signal.SIGSTOP)  # so that it cannot be done before it is killed
        parts.save(job, 10)
        if job.rank == 1 and fault == "dies":
            kill(pid)
        started = time.monotonic()
        parts.checkpointer.wait()
        waited = time.monotonic() - started
        parts.save(job, 20)
        parts.checkpointer.wait(within=30)
        return waited


def test_a_worker_that_dies_costs_one_save_on_all_ranks(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, MODE)
    crew.call(save_with_a_worker_that, settings, "dies")
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert "the checkpoint worker died" in failures(settings)[1][2]
    assert committed_steps(settings) == [20]
    assert crew.call(restore, settings) == [(20, True)] * 2


def test_a_worker_that_hangs_costs_one_save_and_a_bounded_wait(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, MODE, timeouts={"drain_seconds": 0.5})
    waits = crew.call(save_with_a_worker_that, settings, "hangs")
    assert all(0.4 < waited < 5 for waited in waits)
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert "not durable within 0.5 s" in failures(settings)[1][2]
    assert committed_steps(settings) == [20]
    assert crew.call(restore, settings) == [(20, True)] * 2


def save_without_room(job: Job, settings: TrainerSettings) -> int:
    """At step 10 rank 1 finds the disk full, in the shape of a link to /dev/full."""
    parts = parts_of(job, settings)
    with closing(parts):
        once_done(background_worker())
        pid = pid_of(background_worker())
        folder = tmp_folder(settings, step=10)
        folder.mkdir(parents=True, exist_ok=True)
        if job.rank == 1:
            (folder / f".rank-1.pt.{pid}").symlink_to("/dev/full")
        assert job.everyone(True)
        for step in (10, 20):
            parts.save(job, step)
            parts.checkpointer.wait()
        return len(list(tmp_folder(settings, step=20).iterdir()))


def tmp_folder(settings: TrainerSettings, *, step: int) -> Path:
    return settings.run_directory / "checkpoints" / f"step-{step:08d}-attempt-0001"


def test_a_full_disk_on_one_rank_drops_the_save_on_all_and_the_next_one_commits(
    crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, MODE)
    assert crew.call(save_without_room, settings) == [3, 3]  # two shards and the record
    assert [(rank, step) for rank, step, _ in failures(settings)] == [(0, 10), (1, 10)]
    assert "No space left on device" in failures(settings)[1][2]
    assert committed_steps(settings) == [20]
    assert not tmp_folder(settings, step=10).exists()
