"""Local shards: a rank's own file is what was there when the save began, or is not there."""

import fcntl
import os
import select
import signal
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
    finished,
    local_writer,
    make_folder,
    restored_digest,
    save,
)
from tests.trainer.ranks import (
    Crew,
    UnevenModel,
    background_worker,
    fill,
    kill,
    once_done,
    pid_of,
    sharded_state,
)
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
    assert local_reader.read(checkpoint, again.tensors(), job.rank, 2) is None
    content = torch.load(folder / f"rank-{job.rank}.pt", weights_only=True)
    return sorted(content), again.digest() == before


def test_tied_weights_are_saved_once_and_restored(crew: Crew, tmp_path: Path) -> None:
    names = [
        "model.embedding.weight",
        *(f"optimizer.embedding.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step")),
    ]
    assert crew.call(save_tied, tmp_path) == [(names, True)] * 2


def lose_the_worker(job: Job, folder: Path) -> tuple[Progress, str, Progress]:
    """How a save ends whose worker is killed before it writes, and how the next one does."""
    writer, state = local_writer(job), sharded_state(job, seed=1)
    once_done(background_worker())
    pid = pid_of(background_worker())
    os.kill(pid, signal.SIGSTOP)
    make_folder(job, folder / "lost")
    writer.begin(state.tensors(), folder / "lost")
    assert writer.progress() is Progress.WRITING
    kill(pid)
    ended, reason = writer.progress(), writer.failure()
    writer.abandon()
    make_folder(job, folder / "next")
    writer.begin(state.tensors(), folder / "next")
    return ended, reason, finished(writer)


def test_a_save_whose_worker_is_killed_has_failed_and_the_next_one_works(
    crew: Crew, tmp_path: Path
) -> None:
    expected = (Progress.FAILED, "the checkpoint worker died", Progress.WRITTEN)
    assert crew.call(lose_the_worker, tmp_path) == [expected, expected]
    assert list((tmp_path / "lost").iterdir()) == []


def kill_in_mid_write(job: Job, folder: Path) -> tuple[Progress, str, bool]:
    """Where the file is to grow there is a pipe, which takes 4 KiB and no more."""
    writer, state = local_writer(job), sharded_state(job, seed=1)
    once_done(background_worker())
    pid = pid_of(background_worker())
    make_folder(job, folder)
    pipe = folder / f".rank-{job.rank}.pt.{pid}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    writer.begin(state.tensors(), folder)
    assert select.select([reader], [], [], 30)[0]  # so it is writing
    first = os.read(reader, 2)
    assert writer.progress() is Progress.WRITING
    kill(pid)
    os.close(reader)
    return writer.progress(), writer.failure(), first == b"PK"


def test_a_worker_killed_while_it_writes_leaves_no_file_of_that_name(
    crew: Crew, tmp_path: Path
) -> None:
    expected = (Progress.FAILED, "the checkpoint worker died", True)
    assert crew.call(kill_in_mid_write, tmp_path) == [expected, expected]
    assert not list(tmp_path.glob("rank-*"))


def fill_the_disk(job: Job, folder: Path) -> tuple[Progress, str, CallState, Progress]:
    """Rank 1 finds a disk that is full, in the shape of a link to /dev/full."""
    writer, state = local_writer(job), sharded_state(job, seed=1)
    once_done(background_worker())
    pid = pid_of(background_worker())
    make_folder(job, folder)
    if job.rank == 1:
        (folder / f".rank-1.pt.{pid}").symlink_to("/dev/full")
    writer.begin(state.tensors(), folder)
    ended, reason, worker = finished(writer), writer.failure(), background_worker().state()
    writer.abandon()
    make_folder(job, folder / "next")
    writer.begin(state.tensors(), folder / "next")
    after = finished(writer)
    assert pid_of(background_worker()) == pid
    return ended, reason, worker, after


def test_a_full_disk_is_told_in_words_and_the_worker_writes_the_next_save(
    crew: Crew, tmp_path: Path
) -> None:
    there, full = crew.call(fill_the_disk, tmp_path)
    assert there == (Progress.WRITTEN, "", CallState.IDLE, Progress.WRITTEN)
    reason = "OSError: [Errno 28] No space left on device"
    assert full == (Progress.FAILED, reason, CallState.IDLE, Progress.WRITTEN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next", "rank-0.pt"]


def find_a_folder_in_the_way(job: Job, folder: Path) -> tuple[Progress, str]:
    writer = local_writer(job)
    make_folder(job, folder)
    (folder / f"rank-{job.rank}.pt").mkdir()
    writer.begin(sharded_state(job, seed=1).tensors(), folder)
    return finished(writer), writer.failure()


def test_a_file_that_cannot_get_its_name_is_removed(crew: Crew, tmp_path: Path) -> None:
    for ended, reason in crew.call(find_a_folder_in_the_way, tmp_path):
        assert ended is Progress.FAILED
        assert "Is a directory" in reason
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.pt", "rank-1.pt"]


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
