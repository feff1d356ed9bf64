"""Snapshots on GPUs: ``torchrun --nproc-per-node 2 -m tests.trainer.gpu_snapshots``, by hand.

Trains ``--preset`` and copies each rank's state beside it. Rank 0 prints a JSON line for each
finding: whether the copies are those of their steps although the next update has changed
the state, and what a step costs with a copy issued by layers, with one issued at once, and
without any. Exit 0 if the values hold and the sliced copy costs at most ``--most`` of a step.

Not covered: what pinning the memory costs a step that runs beside it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trainer.ranks import trainer_settings
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import Slot
from trainer.distributed import Job, process_group
from trainer.model import build_model
from trainer.optimization import Optimization, adamw, wait_for_gpu
from trainer.settings import TimeoutSettings, TrainerSettings
from trainer.snapshots.copier import Copy, StreamCopier
from trainer.state import TrainState, local_shard
from trainer.timeouts import derive_timeouts

VOCABULARY = 128_256
ALIGNMENT_BYTES = 64


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--preset", default="llama-1b", help="of model.preset")
    parser.add_argument("--tokens", type=int, default=4096, help="of each of four sequences")
    parser.add_argument("--num-steps", type=int, default=15, help="of each kind, in each round")
    parser.add_argument("--num-rounds", type=int, default=4, help="in which the kinds take turns")
    parser.add_argument("--most", type=float, default=0.02, help="share of a step, 0 to 1")
    options = parser.parse_args(argv)
    timeouts = derive_timeouts(TimeoutSettings(), device="cuda")
    with tempfile.TemporaryDirectory() as folder, process_group("cuda", timeouts, None) as job:
        settings = trainer_settings(
            Path(folder),
            model={"preset": options.preset, "activation_checkpointing": True},
            data={"sequence_length": options.tokens, "global_batch_size": 4 * job.world_size},
        )
        trainer = Trainer(settings, job)
        holds = measure(trainer, options.num_rounds, options.num_steps, options.most)
        holds = job.everyone(holds)
    say("end", holds=holds)
    return 0 if holds else 1


def measure(trainer: "Trainer", num_rounds: int, num_steps: int, most: float) -> bool:
    """Whether all holds that this is to show."""
    layers = list(trainer.model.model.layers)
    before = sum(len(layer._forward_pre_hooks) for layer in layers)  # of FSDP
    sliced, bulk = StreamCopier(layers), StreamCopier([])
    for _ in range(8):  # kernels are chosen, memory is first used
        trainer.step()
    holds = values_hold(trainer, sliced) & values_hold(trainer, bulk)
    copies: dict[str, list[Copy]] = {"bulk": [], "sliced": []}
    kinds = {
        "bare": trainer.step,
        "bulk": copying(trainer, bulk, copies["bulk"]),
        "sliced": copying(trainer, sliced, copies["sliced"]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(num_rounds):
        for name, run in kinds.items():
            seconds[name] += timed(num_steps, run)
    bare = statistics.median(seconds["bare"])
    added = {name: statistics.median(seconds[name]) - bare for name in copies}
    for name in copies:
        say(
            "overlap",
            issued=name,
            step_seconds=bare,
            step_quartiles=statistics.quantiles(seconds["bare"]),
            step_seconds_with_copy=bare + added[name],
            with_copy_quartiles=statistics.quantiles(seconds[name]),
            added_seconds=added[name],
            added_fraction=added[name] / bare,
            copy_seconds=copies[name][-2].seconds(),
            gib=trainer.state_bytes / 2**30,
            num_steps=len(seconds[name]),
        )
    closed = [copier.close() for copier in (sliced, bulk)]
    hooks = sum(len(layer._forward_pre_hooks) for layer in layers) - before
    say("closed", idle=closed, hooks_left=hooks)
    return holds and all(closed) and hooks == 0 and added["sliced"] / bare <= most


class Trainer:
    """The trainer's own steps on the same batch, and two pinned buffers for the state."""

    def __init__(self, settings: TrainerSettings, job: Job) -> None:
        self._device = job.device
        self.model = build_model(
            settings.model, vocabulary_size=VOCABULARY, mesh=job.mesh, device=job.device
        )
        state = TrainState(self.model, adamw(self.model, settings.optimizer))
        self._optimization = Optimization(settings, job=job, state=state, end_of_text=0)
        self.tensors = [local_shard(tensor).detach() for tensor in state.tensors().values()]
        self.state_bytes = sum(tensor.nbytes for tensor in self.tensors)
        began = time.monotonic()
        self._memories = [self._memory() for _ in range(2)]
        say("pinned", seconds=time.monotonic() - began, gib=2 * self.state_bytes / 2**30)
        self.buffers = [self._views(memory) for memory in self._memories]
        length = settings.data.sequence_length
        self._tokens = torch.randint(1, VOCABULARY, (4, length + 1))

    def step(self, fence: Callable[[], None] = lambda: None) -> None:
        """As the loop does it: the one wait of the host is for the copy as well."""
        loss = self._optimization.backward(self._tokens)
        norm = self._optimization.clip()
        fence()
        wait_for_gpu(loss, norm)
        self._optimization.update(1)

    def _memory(self) -> HostMemory:
        memory = HostMemory(self.state_bytes + ALIGNMENT_BYTES * len(self.tensors), self._device)
        memory.get_ready()
        memory.wait(120)
        return memory

    def _views(self, memory: HostMemory) -> list[Tensor]:
        views, offset = [], 0
        for tensor in self.tensors:
            views.append(Slot(offset, tuple(tensor.shape), tensor.dtype).view(memory.values))
            offset += -(-tensor.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return views


def values_hold(trainer: Trainer, copier: StreamCopier) -> bool:
    """A copy of this state, made beside the next step, is of this state and not of the next."""
    expected = [tensor.cpu() for tensor in trainer.tensors]
    copy = copier.start(trainer.tensors, trainer.buffers[0])
    was_done = copy.is_done()
    trainer.step(copier.fence)
    torch.cuda.current_stream().synchronize()
    pairs = list(zip(expected, trainer.buffers[0], trainer.tensors, strict=True))
    wrong = sum(not torch.equal(old, found) for old, found, _ in pairs)
    changed = sum(not torch.equal(old, new.cpu()) for old, _, new in pairs)
    say(
        "values",
        slices=copier.num_slices,
        done_at_start=was_done,
        done=copy.is_done(),
        wrong_tensors=wrong,
        changed_tensors=changed,
        num_tensors=len(pairs),
        copy_seconds=copy.seconds(),
    )
    return not was_done and copy.is_done() and wrong == 0 and changed > len(pairs) // 2


def copying(trainer: Trainer, copier: StreamCopier, copies: list[Copy]) -> Callable[[], None]:
    """A step beside a copy of the state before it, into each buffer in turn."""

    def run() -> None:
        buffer = trainer.buffers[len(copies) % 2]
        copies.append(copier.start(trainer.tensors, buffer))
        if copier.num_slices == 1:
            copier._issue()  # at once, and not at the fence: some of it may overlap
        trainer.step(copier.fence)

    return run


def timed(count: int, run: Callable[[], None]) -> list[float]:
    """Seconds of each but the first, which may wait for what was before; the GPU was done then."""
    seconds = []
    for _ in range(count + 1):
        torch.cuda.synchronize()
        began = time.monotonic()
        run()
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    return seconds[1:]


def say(finding: str, **values: Any) -> None:
    if os.environ["RANK"] == "0":
        print(json.dumps({"finding": finding, **values}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
