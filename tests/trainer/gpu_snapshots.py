"""Snapshots on a GPU: ``python -m tests.trainer.gpu_snapshots``, by hand, not in CI.

Trains ``--preset`` on one GPU and copies its state beside it. Prints a JSON line for each
finding: whether the copies are those of their steps although the next update has changed
the state, and what a step costs with a copy issued by layers, with one issued at once, and
without any. Exit 0 if the values hold and the sliced copy costs at most ``--most`` of a step.

Not covered: collectives beside the copy; for those run it under ``torchrun`` as well.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import Slot
from trainer.model import build_model
from trainer.optimization import adamw
from trainer.settings import ModelPreset, ModelSettings, OptimizerSettings
from trainer.snapshots.copier import Copy, StreamCopier
from trainer.state import TrainState

VOCABULARY = 128_256
ALIGNMENT_BYTES = 64


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--preset", default="llama-1b", help="of model.preset")
    parser.add_argument("--tokens", type=int, default=4096, help="of each of four sequences")
    parser.add_argument("--num-steps", type=int, default=10, help="that are timed, of each kind")
    parser.add_argument("--most", type=float, default=0.02, help="share of a step, 0 to 1")
    options = parser.parse_args(argv)
    trainer = Trainer(ModelPreset(options.preset), options.tokens)
    layers = list(trainer.model.model.layers)
    sliced, bulk = StreamCopier(layers), StreamCopier([])
    for number in range(3):  # kernels are chosen, memory is first used
        trainer.step(number)
    holds = all([values_hold(trainer, copier) for copier in (sliced, bulk)])
    bare = timed(options.num_steps, lambda: trainer.step(1))
    results: dict[str, float] = {}
    for name, copier in (("bulk", bulk), ("sliced", sliced)):
        copies: list[Copy] = []
        run = copying(trainer, copier, copies)
        timed(3, run)
        seconds = timed(options.num_steps, run)
        again = timed(options.num_steps, lambda: trainer.step(1))
        added = seconds - statistics.mean([bare, again])
        results[name] = added / bare
        say(
            "overlap",
            issued=name,
            step_seconds=bare,
            step_seconds_again=again,
            step_seconds_with_copy=seconds,
            added_seconds=added,
            added_fraction=added / bare,
            copy_seconds=copies[-2].seconds(),
            gib=trainer.state_bytes / 2**30,
        )
    closed = [copier.close() for copier in (sliced, bulk)]
    hooks = sum(len(layer._forward_pre_hooks) for layer in layers)
    say("closed", idle=closed, hooks_left=hooks)
    holds &= all(closed) and hooks == 0 and results["sliced"] <= options.most
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


class Trainer:
    """A model, whole on one GPU, and two pinned buffers for its state."""

    def __init__(self, preset: ModelPreset, tokens: int) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device())
        settings = ModelSettings(preset=preset, activation_checkpointing=True)
        self.model = build_model(
            settings, vocabulary_size=VOCABULARY, mesh=None, device=self._device
        )
        optimizer = adamw(self.model, OptimizerSettings())
        self._optimizer = optimizer
        state = TrainState(self.model, optimizer)
        self.tensors = [tensor.detach() for tensor in state.tensors().values()]
        self.state_bytes = sum(tensor.nbytes for tensor in self.tensors)
        began = time.monotonic()
        self._memories = [self._memory() for _ in range(2)]
        say("pinned", seconds=time.monotonic() - began, gib=2 * self.state_bytes / 2**30)
        self.buffers = [self._views(memory) for memory in self._memories]
        self._tokens = torch.randint(0, VOCABULARY, (4, tokens + 1), device=self._device)

    def step(self, _: int, fence: Callable[[], None] = lambda: None) -> None:
        """As the loop does it: the host waits for the norm, then the fence, then the update."""
        inputs, labels = self._tokens[:, :-1], self._tokens[:, 1:]
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        torch.stack([loss.detach(), norm]).tolist()
        fence()
        self._optimizer.step()
        self._optimizer.zero_grad()

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
    trainer.step(1, copier.fence)
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
        trainer.step(1, copier.fence)

    return run


def timed(count: int, run: Callable[[], None]) -> float:
    """Seconds of one, on average; the GPU is done with all of them."""
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (time.monotonic() - began) / count


def say(finding: str, **values: Any) -> None:
    print(json.dumps({"finding": finding, **values}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
