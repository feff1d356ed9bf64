"""Both writers: what is restored is what was there when the save began, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from tests.trainer.ranks import (
    Crew,
    background_worker,
    fill,
    once_done,
    pid_of,
    sharded_state,
)
from tests.trainer.writers import finished, lose_the_worker_of, make_folder
from trainer.checkpoint.async_writer import AsyncWriter
from trainer.checkpoint.background import CallState
from trainer.checkpoint.layout import FileRecord, record_file
from trainer.checkpoint.sync_writer import SyncWriter
from trainer.checkpoint.writer import Progress, ShardWriter
from trainer.distributed import Job
from trainer.state import TrainState

pytestmark = pytest.mark.distributed

MODES = ("sync", "async")


def writer_of(mode: str, job: Job) -> ShardWriter:
    if mode == "sync":
        return SyncWriter()
    return AsyncWriter(background_worker(), rank=job.rank, world_size=job.world_size)


def save_then_change(
    job: Job, writer: ShardWriter, state: TrainState, folder: Path
) -> list[FileRecord]:
    """A save during which training goes on at once; this rank's files."""
    make_folder(job, folder)
    writer.begin(state.tensors(), folder)
    fill(state, seed=999)
    assert finished(writer) is Progress.WRITTEN, writer.failure()
    assert job.everyone(True)
    return writer.finish()


def restored_digest(job: Job, folder: Path) -> str:
    state = sharded_state(job, seed=5)
    dcp.load(state.tensors(), checkpoint_id=folder)
    return state.digest()


def save_twice(job: Job, mode: str, folders: tuple[Path, Path]) -> list[tuple[str, str]]:
    """Of each save, the digest of this rank's state before it and of what is restored from it."""
    writer, digests = writer_of(mode, job), []
    for seed, folder in enumerate(folders):
        state = sharded_state(job, seed=seed)
        before = state.digest()
        save_then_change(job, writer, state, folder)
        assert job.everyone(True)  # the metadata, which rank 0 writes last, is there
        digests.append((before, restored_digest(job, folder)))
    return digests


@pytest.mark.parametrize("mode", MODES)
def test_each_save_restores_what_was_there_when_it_began(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    ranks = crew.call(save_twice, mode, (tmp_path / "first", tmp_path / "second"))
    for saves in ranks:
        assert [restored for _, restored in saves] == [before for before, _ in saves]
    assert len({before for saves in ranks for before, _ in saves}) == 4  # so no two are alike


def whole_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def save_whole(job: Job, folder: Path) -> tuple[dict[str, Any], list[list[FileRecord]]]:
    """Saved in both modes: the whole tensors when the saves began, and each mode's files."""
    state = sharded_state(job, seed=7)
    whole = {
        name: whole_tensor(tensor).detach().clone().numpy()
        for name, tensor in state.tensors().items()
    }
    files = []
    for mode in MODES:
        fill(state, seed=7000 + job.rank)
        files.append(save_then_change(job, writer_of(mode, job), state, folder / mode))
    return whole, files


def test_one_rank_restores_what_two_have_saved_in_either_mode(
    crew: Crew, tmp_path: Path, mesh: DeviceMesh
) -> None:
    (expected, _), _ = crew.call(save_whole, tmp_path)
    alone = Job(rank=0, world_size=1, device=torch.device("cpu"), mesh=mesh)
    for mode in MODES:
        state = sharded_state(alone, seed=5)
        dcp.load(state.tensors(), checkpoint_id=tmp_path / mode)
        assert state.tensors().keys() == expected.keys()
        for name, tensor in state.tensors().items():
            assert torch.equal(whole_tensor(tensor), torch.from_numpy(expected[name])), (mode, name)


def test_ranks_answer_for_every_file_once_and_as_it_is(crew: Crew, tmp_path: Path) -> None:
    ranks = crew.call(save_whole, tmp_path)
    for index, mode in enumerate(MODES):
        records = [record for _, files in ranks for record in files[index]]
        names = sorted(record.name for record in records)
        assert names == [".metadata", "__0_0.distcp", "__1_0.distcp"]
        for record in records:
            assert record == record_file(tmp_path / mode / record.name)


def fail_on_rank_one(job: Job, mode: str, folder: Path) -> tuple[Progress, str, Progress]:
    """How a save ends when a folder stands where rank 1's file is to be; how the next one does."""
    writer, state = writer_of(mode, job), sharded_state(job, seed=1)
    make_folder(job, folder / "__1_0.distcp")
    writer.begin(state.tensors(), folder)
    ended = finished(writer)
    reason = writer.failure()
    assert job.everyone(True)
    writer.abandon()
    make_folder(job, folder.with_name("next"))
    writer.begin(state.tensors(), folder.with_name("next"))
    return ended, reason, finished(writer)


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_cannot_write_says_why_and_the_next_save_works(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    (tmp_path / "save").mkdir()
    _, (ended, reason, then) = crew.call(fail_on_rank_one, mode, tmp_path / "save")
    assert (ended, then) == (Progress.FAILED, Progress.WRITTEN)
    assert "Is a directory" in reason


def lose_the_worker(job: Job, folder: Path) -> tuple[Progress, str, Progress]:
    return lose_the_worker_of(writer_of("async", job), job, folder)


def test_a_save_whose_worker_is_killed_has_failed_and_the_next_one_works(
    crew: Crew, tmp_path: Path
) -> None:
    expected = (Progress.FAILED, "the checkpoint worker died", Progress.WRITTEN)
    assert crew.call(lose_the_worker, tmp_path) == [expected, expected]


def write_below_a_file(job: Job, file: Path) -> tuple[bool, Progress]:
    worker = background_worker()
    writer = AsyncWriter(worker, rank=job.rank, world_size=job.world_size)
    once_done(worker)
    before = pid_of(worker)
    writer.begin(sharded_state(job, seed=1).tensors(), file / "folder")
    ended = finished(writer)
    assert worker.state() is CallState.IDLE
    return pid_of(worker) == before, ended


def test_a_failed_write_leaves_its_worker_alive(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert crew.call(write_below_a_file, tmp_path / "file") == [(True, Progress.FAILED)] * 2
