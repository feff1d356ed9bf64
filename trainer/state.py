"""Everything that a run must get back to go on exactly: parameters and optimizer state.

One flat dictionary of named tensors serves saving, restoring and comparing, so
nothing can be saved that is not restored. The rest needs no saving: samples,
learning rate and random numbers are functions of the step, and the step is in
the checkpoint's commit record.
"""

import hashlib
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW


class TrainState:
    """A model and its AdamW optimizer, whose moments exist from the start.

    PyTorch creates the moments lazily, at the first step. Made here at once, the
    names and shapes of the state are the same at every step, and a checkpoint can
    be read into a fresh process without a dummy step.
    """

    def __init__(self, model: nn.Module, optimizer: AdamW) -> None:
        self.model = model
        self.optimizer = optimizer
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for parameter in self._names:
            if parameter.requires_grad:
                _create_moments(optimizer, parameter)

    def tensors(self) -> dict[str, Tensor]:
        """Live tensors by name; writing into them changes the training."""
        return dict(self._named())

    def digest(self) -> str:
        """SHA-256 of this rank's parameters and optimizer state, bit for bit."""
        result = hashlib.sha256()
        for name, tensor in sorted(self._named()):
            shard = local_shard(tensor).detach().cpu().contiguous()
            result.update(f"{name} {tuple(shard.shape)} {shard.dtype}".encode())
            result.update(shard.reshape(-1).view(torch.uint8).numpy().tobytes())
        return result.hexdigest()

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for parameter, name in self._names.items():
            yield f"model.{name}", parameter
            for key, value in self.optimizer.state[parameter].items():
                yield f"optimizer.{name}.{key}", value


def seed_random_numbers(seed: int, *, step: int, rank: int) -> None:
    """Make every random number of ``step`` on ``rank`` follow from these three alone."""
    torch.manual_seed(random.Random(f"{seed} {step} {rank}").getrandbits(63))


def local_shard(tensor: Tensor) -> Tensor:
    """The part of ``tensor`` that this rank holds; the tensor itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _create_moments(optimizer: AdamW, parameter: Tensor) -> None:
    # What AdamW itself would create at its first step (torch/optim/adam.py): the
    # counter lives on the CPU unless the kernel is fused.
    fused = bool(optimizer.defaults["fused"])
    optimizer.state[parameter] = {
        "step": torch.zeros((), device=parameter.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }
