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

_DIGEST_CHUNK = 1 << 24  # words at a time, so that a digest needs little memory


class TrainState:
    """A model and its AdamW optimizer, whose moments exist from the start.

    PyTorch creates the moments lazily, at the first step. Made here at once, the
    names and shapes of the state are the same at every step, and a checkpoint can
    be read into a fresh process without a dummy step.
    """

    def __init__(self, model: nn.Module, optimizer: AdamW) -> None:
        self.model = model
        self.optimizer = optimizer
        self.step: int | None = None
        """The step after which the tensors are; None while they change, and until they are
        those of a step at all. On a GPU: once the kernels that were launched have run."""

        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for parameter in self._names:
            if parameter.requires_grad:
                _create_moments(optimizer, parameter)

    def tensors(self) -> dict[str, Tensor]:
        """Live tensors by name; writing into them changes the training."""
        return dict(self._named())

    def digest(self) -> str:
        """A fingerprint of this rank's parameters and optimizer state that any bit changes.

        Made where the tensors are: 12 GB a rank take milliseconds on a GPU, and minutes
        through a cryptographic hash on the host. It is no proof against forgery.
        """
        result = hashlib.sha256()
        for name, tensor in sorted(self._named()):
            shard = local_shard(tensor).detach()
            result.update(f"{name} {tuple(shard.shape)} {shard.dtype}".encode())
            result.update(_mixed_sum(shard).to_bytes(8, "little", signed=True))
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


def _mixed_sum(tensor: Tensor) -> int:
    """Sum modulo 2**64 of all words of ``tensor``, each mixed with its position.

    For each position the mixing is one to one, so one changed word changes the sum.
    Integer arithmetic wraps, and gives the same on every device.
    """
    octets = tensor.contiguous().reshape(-1).view(torch.uint8)
    words = octets.view(torch.int32) if octets.numel() % 4 == 0 else octets
    total = 0
    for start in range(0, words.numel(), _DIGEST_CHUNK):
        chunk = words[start : start + _DIGEST_CHUNK].to(torch.int64)
        position = torch.arange(start, start + chunk.numel(), device=chunk.device)
        mixed = (chunk ^ (position * 0x9E3779B97F4A7C1)) * 0x2545F4914F6CDD1D
        mixed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) * 0x369DEA0F31A53F85
        total += int(mixed.sum().item())
    return (total + 2**63) % 2**64 - 2**63


def _create_moments(optimizer: AdamW, parameter: Tensor) -> None:
    # What AdamW itself would create at its first step (torch/optim/adam.py): the
    # counter lives on the CPU unless the kernel is fused.
    fused = bool(optimizer.defaults["fused"])
    optimizer.state[parameter] = {
        "step": torch.zeros((), device=parameter.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }
