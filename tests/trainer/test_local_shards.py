"""Local shards: a rank's own file is what was there when the save began, or is not there."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from tests.trainer.local_shards import (
    begun_while_stopped,
    checkpoint_at,
    local_writer,
    restored_digest,
    save,
)
from tests.trainer.ranks import (
    Crew,
    UnevenModel,
    background_worker,
    fill,
    once_done,
    sharded_state,
)
from tests.trainer.writers import finished
from trainer.checkpoint import local_reader
from trainer.checkpoint.background import CallState
from trainer.checkpoint.layout import FileRecord, record_file
from trainer.checkpoint.shard_file import warm_up
from trainer.checkpoint.writer import Progress
from trainer.distributed import Job
from trainer.state import TrainState, local_shard

pytestmark = pytest.mark.distributed


def save_twice(job: Job, folders: tuple[Path, Path]) -> list[tuple[str, str]]:
    """Of each save, the digest of this rank's state before it and of what is restored from it."""
    writer, digests = local_writer(job), []
    for seed, folder in enumerate(folders):
        state = sharded_state(job, seed=seed)
        before = state.digest()
        files = save(job, writer, state, folder)
        digests.append((before, restored_digest(job, folder, files)))
    return digests


def test_each_save_restores_what_was_there_when_it_began(crew: Crew, tmp_path: Path) -> None:
    ranks = crew.call(save_twice, (tmp_path / "first", tmp_path / "second"))
    for saves in ranks:
        assert [restored for _, restored in saves] == [before for before, _ in saves]
    assert len({before for saves in ranks for before, _ in saves}) == 4  # so no two are alike


def step_before_it_is_written(job: Job, folder: Path) -> tuple[str, str, str]:
    """Digests of the state when the save began, after the optimizer's next step, and restored."""
    model: Any = fully_shard(UnevenModel(), mesh=job.mesh)
    optimizer = AdamW(model.parameters(), lr=0.1, fused=True)
    state = TrainState(model, optimizer)
    fill(state, seed=job.rank)
    before = state.digest()
    writer = local_writer(job)
    with begun_while_stopped(job, writer, state, folder):
        model(torch.arange(257)).square().mean().backward()
        optimizer.step()
        after = state.digest()
    assert finished(writer) is Progress.WRITTEN, writer.failure()
    assert not any(local_shard(tensor).is_shared() for tensor in state.tensors().values())
    return before, after, restored_digest(job, folder, writer.finish())


def test_the_step_right_after_a_save_does_not_leak_into_it(crew: Crew, tmp_path: Path) -> None:
    for before, after, restored in crew.call(step_before_it_is_written, tmp_path / "save"):
        assert restored == before
        assert after != before


def save_and_compare(job: Job, folder: Path) -> tuple[list[FileRecord], list[tuple[int, ...]]]:
    """The files that this rank answers for, and the shapes that are in its file."""
    state = sharded_state(job, seed=3)
    files = save(job, local_writer(job), state, folder)
    content = torch.load(folder / f"rank-{job.rank}.pt", weights_only=True, mmap=True)
    assert content.keys() == state.tensors().keys()
    assert files == [record_file(folder / f"rank-{job.rank}.pt")]
    return files, [tuple(value.shape) for name, value in content.items() if name[:5] == "model"]


def test_a_file_is_a_plain_dictionary_of_one_ranks_shards_however_uneven(
    crew: Crew, tmp_path: Path
) -> None:
    (files_0, shapes_0), (files_1, shapes_1) = crew.call(save_and_compare, tmp_path)
    assert shapes_0 == [(1, 3), (129, 8), (2, 8), (2,)]
    assert shapes_1 == [(0, 3), (128, 8), (1, 8), (1,)]
    assert [file.name for file in [*files_0, *files_1]] == ["rank-0.pt", "rank-1.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.pt", "rank-1.pt"]
    # 257 rows of 8, 3 of 8, 3 and 3 numbers of 4 bytes, thrice, and what names them.
    assert 3 * 4 * 2086 < files_0[0].size_bytes + files_1[0].size_bytes < 2 * 3 * 4 * 2086


class TiedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 5)
        self.head = nn.Linear(5, 13, bias=False)
        self.head.weight = self.embedding.weight


def save_tied(job: Job, folder: Path) -> tuple[list[str], bool]:
    def make() -> TrainState:
        model: Any = fully_shard(TiedModel(), mesh=job.mesh)
        return TrainState(model, AdamW(model.parameters()))

    state, again = make(), make()
    fill(state, seed=job.rank)
    before = state.digest()
    files = save(job, local_writer(job), state, folder)
    checkpoint = checkpoint_at(folder, files, world_size=2)
    assert local_reader.read(checkpoint, again.tensors(), job.rank) is None
    content = torch.load(folder / f"rank-{job.rank}.pt", weights_only=True)
    return sorted(content), again.digest() == before


def test_tied_weights_are_saved_once_and_restored(crew: Crew, tmp_path: Path) -> None:
    names = [
        "model.embedding.weight",
        *(f"optimizer.embedding.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step")),
    ]
    assert crew.call(save_tied, tmp_path) == [(names, True)] * 2


def memory_held_by_an_idle_worker(job: Job, folder: Path) -> tuple[bool, bool]:
    """Whether the worker maps staged memory after a save, and when the next attempt has begun."""
    worker = background_worker()
    save(job, local_writer(job), sharded_state(job, seed=1), folder)
    maps = Path(f"/proc/{worker_pid()}/maps")
    held = "steadfast-staging" in maps.read_text()
    worker.start(warm_up)
    assert once_done(worker) is CallState.IDLE
    return held, "steadfast-staging" in maps.read_text()


def worker_pid() -> int:
    """Unlike ``pid_of`` it asks the worker nothing, which would already make it let go."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    (pid,) = (c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes())
    return int(pid)


def test_a_new_attempt_makes_the_worker_let_go_of_the_last_ones_memory(
    crew: Crew, tmp_path: Path
) -> None:
    ranks = crew.call(memory_held_by_an_idle_worker, tmp_path)
    assert [after for _, after in ranks] == [False, False]
