"""NVRx's ``LocalCheckpointManager`` over FSDP2 shards, beside our copy into pinned memory.

    torchrun --nproc-per-node 2 -m tests.trainer.bench_local_manager --folder /dev/shm/local

Each way saves twice while the model trains, and rank 0 prints a JSON line a save: seconds
for which the loop stood still, seconds until the save was called written, the step's seconds
before and meanwhile, bytes in all folders. Then each is restored, by a manager made anew, and
compared with the state that was saved; with replicas also after rank 1 has lost its folder.
``--device cpu --preset tiny`` needs no GPU; shims of ours stand in for what NVRx takes a GPU for.

Not covered: a second node. Both ranks' folders lie on this computer.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from nvidia_resiliency_ext.checkpointing.async_ckpt.core import AsyncCallsQueue
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import (
    CliqueReplicationStrategy,
)
from torch import Tensor

from tests.trainer.bench_local_state import tensor_aware
from tests.trainer.ranks import trainer_settings
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import Slot
from trainer.data import BuiltInCorpus
from trainer.distributed import Job, process_group
from trainer.model import build_model
from trainer.optimization import Optimization, adamw, wait_for_gpu
from trainer.settings import TimeoutSettings
from trainer.state import TrainState, local_shard
from trainer.timeouts import derive_timeouts

NUM_SAVES = 2
IDLE_STEPS = 8
MOST_STEPS = 2000
ALIGNMENT_BYTES = 64


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=("tiny", "llama-1b"), default="llama-1b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, required=True, help="emptied; on memory or disk")
    options = parser.parse_args(argv)
    timeouts = derive_timeouts(TimeoutSettings(), device=options.device)
    with process_group(options.device, timeouts, None) as job:
        bench = Bench(options, job)
        bench.ours()
        bench.manager("sync", replicas=1, is_async=False)
        bench.manager("async", replicas=1, is_async=True)
        bench.whole_dtensors()
        bench.manager("async, a replica", replicas=2, is_async=True)  # last: see its end
    return 0


class Bench:
    def __init__(self, options: argparse.Namespace, job: Job) -> None:
        self._job, self._root = job, options.folder
        is_tiny = options.preset == "tiny"
        settings = trainer_settings(
            options.folder / "run",
            model={"preset": options.preset, "activation_checkpointing": not is_tiny},
            data={
                "sequence_length": 64 if is_tiny else 4096,
                "global_batch_size": 4 * job.world_size,
            },
        )
        vocabulary = BuiltInCorpus().vocabulary_size
        self._model = build_model(
            settings.model, vocabulary_size=vocabulary, mesh=job.mesh, device=job.device
        )
        self._state = TrainState(self._model, adamw(self._model, settings.optimizer))
        self._optimization = Optimization(settings, job=job, state=self._state, end_of_text=0)
        self._tokens = torch.randint(1, vocabulary, (4, settings.data.sequence_length + 1))
        self._iteration = 0
        for _ in range(3):  # kernels are chosen, memory is first used
            self._step()

    def ours(self) -> None:
        """The copy that a snapshot is, into pinned memory, waited for: an upper bound."""
        shards = [shard for _, shard in self._shards()]
        size = sum(-(-shard.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for shard in shards)
        memory = HostMemory(size, self._job.device)
        memory.get_ready()
        memory.wait(120)
        views, offset = [], 0
        for shard in shards:
            slot = Slot(offset, tuple(shard.shape), shard.dtype)
            views.append(slot.view(memory.values))
            offset += -(-shard.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        for _ in range(NUM_SAVES):
            idle = self._idle()
            began = time.monotonic()
            for shard, view in zip(shards, views, strict=True):
                view.copy_(shard, non_blocking=True)
            self._wait()
            stall = time.monotonic() - began
            self._say("ours, one blocking copy", idle, (stall, stall), [], size)

    def manager(self, name: str, *, replicas: int, is_async: bool) -> None:
        """Two saves, and their restore."""
        folder = self._root / name.replace(", a ", "-")
        manager = self._new_manager(folder, replicas)
        queue = AsyncCallsQueue(persistent=False)
        for _ in range(NUM_SAVES):
            idle = self._idle()
            meanwhile: list[float] = []
            self._iteration += 1
            began = time.monotonic()
            request = manager.save(
                tensor_aware(dict(self._shards())), self._iteration, is_async=is_async
            )
            if is_async:
                queue.schedule_async_request(request)
            stall = time.monotonic() - began
            saved = [shard.clone() for _, shard in self._shards()]
            while queue.get_num_unfinalized_calls() and len(meanwhile) < MOST_STEPS:
                meanwhile.append(self._step())
                queue.maybe_finalize_async_calls(blocking=False, no_dist=False)
            written = time.monotonic() - began if is_async else stall
            self._say(name, idle, (stall, written), meanwhile, self._bytes(folder))
        self._restore(name, folder, replicas, saved)
        if replicas > 1:
            if self._job.everyone(True) and self._job.rank == 1:
                shutil.rmtree(folder / "bench" / "1")
            self._job.everyone(True)
            self._restore(f"{name}, rank 1's folder lost", folder, replicas, saved)
        self._remove(folder)

    def whole_dtensors(self) -> None:
        """Does it take FSDP2's own tensors, rather than this rank's part of them?"""
        folder = self._root / "dtensors"
        saved = [shard.clone() for _, shard in self._shards()]
        try:
            states = tensor_aware(
                {name: tensor.detach() for name, tensor in self._state.tensors().items()}
            )
            self._new_manager(folder, 1).save(states, self._iteration + 1, is_async=False)
            self._iteration += 1
            self._restore("DTensors as they are", folder, 1, saved)
        except Exception as error:
            self._tell("DTensors as they are", restored=False, error=_line(error))
        self._remove(folder)

    def _restore(self, name: str, folder: Path, replicas: int, saved: list[Tensor]) -> None:
        manager = self._new_manager(folder, replicas)
        began = time.monotonic()
        try:
            found = manager.find_latest()
            loaded, _ = manager.load()
            self._wait()
        except Exception as error:
            self._tell(name, restored=False, error=_line(error))
            return
        seconds = time.monotonic() - began
        values = [local_shard(tensor) for tensor in loaded.state_dict.values()]
        equal = all(map(torch.equal, values, saved)) and len(values) == len(saved)
        kinds = sorted({type(tensor).__name__ for tensor in loaded.state_dict.values()})
        self._tell(
            name,
            restored=self._job.everyone(equal),
            iteration=found,
            seconds=round(seconds, 3),
            tensors=kinds,
        )

    def _remove(self, folder: Path) -> None:
        if self._job.everyone(True) and self._job.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)

    def _new_manager(self, folder: Path, replicas: int) -> LocalCheckpointManager:
        strategy = None
        if replicas > 1:
            strategy = CliqueReplicationStrategy.from_replication_params(
                replication_jump=1, replication_factor=replicas
            )
        return LocalCheckpointManager(folder, session_id="bench", repl_strategy=strategy)

    def _shards(self) -> list[tuple[str, Tensor]]:
        return [
            (name, local_shard(tensor).detach()) for name, tensor in self._state.tensors().items()
        ]

    def _idle(self) -> list[float]:
        seconds = [self._step() for _ in range(IDLE_STEPS)]
        self._job.everyone(True)
        return seconds

    def _step(self) -> float:
        began = time.monotonic()
        loss = self._optimization.backward(self._tokens)
        norm = self._optimization.clip()
        wait_for_gpu(loss, norm)
        self._optimization.update(1)
        self._wait()
        return time.monotonic() - began

    def _wait(self) -> None:
        if self._job.device.type == "cuda":
            torch.cuda.synchronize()

    def _bytes(self, folder: Path) -> int:
        self._job.everyone(True)
        return sum(file.stat().st_size for file in folder.rglob("*.pt"))

    def _say(
        self,
        name: str,
        idle: list[float],
        waits: tuple[float, float],
        meanwhile: list[float],
        size: int,
    ) -> None:
        stall, written = (max(self._job.from_every_rank(seconds)) for seconds in waits)
        self._tell(
            name,
            stall_seconds=round(stall, 3),
            written_seconds=round(written, 3),
            step_seconds=round(statistics.median(idle), 4),
            step_seconds_meanwhile=round(statistics.median(meanwhile), 4) if meanwhile else None,
            num_bytes=size,
        )

    def _tell(self, name: str, **values: Any) -> None:
        if self._job.rank == 0:
            print(json.dumps({"way": name, **values}), flush=True)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # NVRx's threads and forks outlive it otherwise
