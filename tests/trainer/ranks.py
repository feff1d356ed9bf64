"""Ranks of a small job as real processes: gloo, a store in a file, a deadline on everything.

A ``Crew`` starts its processes once and has them call one function after another,
since importing torch takes seconds. When a rank does not answer in time or dies,
the whole crew is killed with all it started, and the next call starts a new one.
"""

import functools
import gc
import multiprocessing
import os
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.distributed import Job, process_group
from trainer.parent_death import die_with
from trainer.settings import TimeoutSettings, TrainerSettings
from trainer.state import TrainState, local_shard
from trainer.timeouts import derive_timeouts

TIMEOUTS = derive_timeouts(
    TimeoutSettings(hang_seconds=40, startup_seconds=40, drain_seconds=20), device="cpu"
)


class RankFailed(AssertionError):
    """A rank raised, died or did not answer; the message holds each one's last words."""


class Crew:
    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._ranks: list[_Rank] = []

    def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float = 60.0
    ) -> list[Any]:
        """``function(job, *arguments)`` on every rank in one process group; results by rank."""
        if not self._ranks:
            self._ranks = [_Rank(rank, self._world_size) for rank in range(self._world_size)]
        deadline = time.monotonic() + seconds
        with tempfile.TemporaryDirectory() as folder:
            for rank in self._ranks:
                rank.connection.send((function, arguments, f"{folder}/store"))
            answers = [rank.answer(deadline) for rank in self._ranks]
        problems = [f"rank {rank}: {why}" for rank, (_, why) in enumerate(answers) if why]
        if problems:
            self.kill()
            raise RankFailed("\n".join(problems))
        return [result for result, _ in answers]

    def kill(self) -> None:
        for rank in self._ranks:
            rank.kill()
        self._ranks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class _Rank:
    def __init__(self, rank: int, world_size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, rank, world_size))
        self._process.start()
        theirs.close()

    def answer(self, deadline: float) -> tuple[Any, str]:
        """What the function returned, or why it did not."""
        if not self.connection.poll(max(0.0, deadline - time.monotonic())):
            return None, "did not answer in time"
        try:
            answer: tuple[Any, str] = self.connection.recv()
        except EOFError:
            self._process.join(5)
            return None, f"died with exit code {self._process.exitcode}"
        return answer

    def kill(self) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self.connection.close()


@functools.cache
def background_worker() -> BackgroundWorker:
    """The one of this process, as the trainer has it: it outlives an attempt."""
    return BackgroundWorker()


def once_done(worker: BackgroundWorker) -> CallState:
    """The worker's state when it runs no more, or after 30 s."""
    deadline = time.monotonic() + 30
    while worker.state() is CallState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.005)
    return worker.state()


def pid_of(worker: BackgroundWorker) -> int:
    """Asked of the worker itself, which must have nothing else to do."""
    with tempfile.TemporaryDirectory() as folder:
        worker.call(_tell_pid, Path(folder, "pid"))
        once_done(worker)
        return int(Path(folder, "pid").read_text())


def _tell_pid(path: Path) -> None:
    path.write_text(str(os.getpid()))


def has_ended(pidfd: int) -> bool:
    """Whether the process ends within 10 s; closes ``pidfd``."""
    ended = bool(select.select([pidfd], [], [], 10)[0])
    os.close(pidfd)
    return ended


def kill(pid: int) -> None:
    """SIGKILL it, and return when it is gone."""
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    assert has_ended(pidfd)


def trainer_settings(run_directory: Path, **groups: dict[str, Any]) -> TrainerSettings:
    """A tiny run on CPU; ``groups`` add to, or replace values of, the groups of settings."""
    values: dict[str, Any] = {
        "run_directory": run_directory,
        "device": "cpu",
        "max_steps": 100,
        "model": {"preset": "tiny"},
        "data": {"sequence_length": 16, "global_batch_size": 4},
        "checkpoint": {"interval_steps": 10},
    }
    for group, changes in groups.items():
        values[group] = values.get(group, {}) | changes
    return TrainerSettings.model_validate(values)


class UnevenModel(nn.Module):
    """On two ranks 257 rows are 129 and 128, three are two and one, and one is one and none."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(257, 8)
        self.head = nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(1, 3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.embedding(tokens)) * self.scale
        return result


def sharded_state(job: Job, *, seed: int) -> TrainState:
    """A sharded model and its optimizer, every value of which follows from rank and seed."""
    model: Any = fully_shard(UnevenModel(), mesh=job.mesh)
    optimizer = AdamW(model.parameters(), fused=True)
    state = TrainState(model, optimizer)
    fill(state, seed=1000 * seed + job.rank)
    return state


@torch.no_grad()
def fill(state: TrainState, *, seed: int) -> None:
    """Replace every value, those that all ranks hold alike by the same on all."""
    torch.manual_seed(seed)
    for name, tensor in state.tensors().items():
        shard = local_shard(tensor)
        if name.endswith(".step"):
            shard.fill_(seed // 1000)
        else:
            shard.copy_(torch.randn(shard.shape))


def _serve(connection: Connection, rank: int, world_size: int) -> None:
    os.setpgid(0, 0)  # so that whatever this rank starts can be killed with it
    _die_with_the_tests()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    while True:
        try:
            function, arguments, store = connection.recv()
        except EOFError:  # the test process is gone
            os.killpg(0, signal.SIGKILL)
        connection.send(_result(function, arguments, dist.FileStore(store, world_size)))


def _die_with_the_tests() -> None:
    """Also in the midst of a function, where nobody reads from the connection."""
    tests = multiprocessing.parent_process()
    assert tests is not None
    assert tests.pid is not None
    die_with(tests.pid)


def _result(
    function: Callable[..., Any], arguments: tuple[Any, ...], store: dist.Store
) -> tuple[Any, str]:
    try:
        with process_group("cpu", TIMEOUTS, store) as job:
            return function(job, *arguments), ""
    except Exception as error:
        words = traceback.format_exc()
        traceback.clear_frames(error.__traceback__)
        return None, words
    finally:
        gc.collect()  # as the trainer does after an attempt: only then do its sockets close
