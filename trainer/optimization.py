"""One optimizer step: gradients of the global batch, in micro batches, and the update by them.

The loss is the mean over all labels of the global batch, padding left out, so
neither the number of ranks nor the size of a micro batch changes more of it than
rounding. Gradients stay on the rank until its last micro batch and are then
reduced once.

The update comes last, and apart: the state may change only once the host has seen that the
collectives of this step have ended on this rank, and that none of them was aborted.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.optim import AdamW

from trainer.data import IGNORED_LABEL, inputs_and_labels, micro_batches
from trainer.distributed import Job
from trainer.schedule import learning_rate
from trainer.settings import OptimizerSettings, TrainerSettings
from trainer.state import TrainState


class NonFiniteStep(ArithmeticError):
    """Loss or gradients of some rank are not numbers: every rank raises this alike."""


def adamw(model: nn.Module, settings: OptimizerSettings) -> AdamW:
    """AdamW that decays matrices and leaves norms and biases alone, as is usual."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]], lr=settings.learning_rate, fused=True
    )


class Optimization:
    """Every rank calls ``backward``, ``clip`` and, after the wait, ``update``, once each a step."""

    def __init__(
        self, settings: TrainerSettings, *, job: Job, state: TrainState, end_of_text: int
    ) -> None:
        self._settings = settings
        self._job = job
        self._state = state
        self._model: Any = state.model
        self._optimizer = state.optimizer
        self._end_of_text = end_of_text

    def backward(self, tokens: Tensor) -> Tensor:
        """Gradients of ``tokens``, this rank's part; its share of the loss.

        The shares of all ranks add up to the loss. A part without labels has share 0.
        """
        pieces = micro_batches(
            tokens,
            self._settings.data,
            world_size=self._job.world_size,
            end_of_text=self._end_of_text,
        )
        batches = [inputs_and_labels(piece, end_of_text=self._end_of_text) for piece in pieces]
        num_labels = _SumOverRanks(sum(int((y != IGNORED_LABEL).sum()) for _, y in batches))
        shares = []
        for index, (inputs, labels) in enumerate(batches):
            is_last = index == len(batches) - 1
            self._model.set_requires_gradient_sync(is_last)
            self._model.set_is_last_backward(is_last)
            share = self._sum_of_losses(inputs, labels) / max(num_labels.get(), 1)
            # 1, or nan for a loss that is no number: then no gradient is one either, on any
            # rank, and their norm tells all ranks of it before the update.
            doubt = 1 + 0 * share.detach()
            # FSDP takes the mean of the ranks' gradients, and the loss is a sum of their shares.
            (share * doubt * self._job.world_size).backward()
            shares.append(share.detach())
        return torch.stack(shares).sum()

    def clip(self) -> Tensor:
        """Clip the gradients; their norm before, the same on every rank. Collective."""
        return clip_gradients(self._model, self._settings.optimizer.max_gradient_norm)

    def update(self, step: int) -> None:
        """Change the parameters by the clipped gradients: from here the state is that of ``step``.

        Only once nothing reads the state of the step before any more.
        """
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(settings.optimizer, step=step, max_steps=settings.max_steps)
        self._state.step = None
        self._optimizer.step()
        self._state.step = step
        self._optimizer.zero_grad()

    def _sum_of_losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        device = self._job.device
        logits = self._model(input_ids=inputs.to(device)).logits
        return cross_entropy(
            logits.flatten(0, 1).float(),
            labels.to(device).flatten(),
            ignore_index=IGNORED_LABEL,
            reduction="sum",
        )


def clip_gradients(model: nn.Module, max_norm: float) -> Tensor:
    """Scale all gradients by one factor so that their norm is at most ``max_norm``.

    Returns the norm before, over all parameters and ranks. Collective.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def wait_for_gpu(loss: Tensor, gradient_norm: Tensor) -> tuple[float, float]:
    """Both on the host, by the one wait of a step. Diagnosis knows it by its name.

    They follow from every gradient: once they are here, the collectives of this step have
    ended on this rank. Whether they were aborted, only the gate can tell.
    """
    seen_loss, seen_norm = torch.stack([loss, gradient_norm]).tolist()
    return seen_loss, seen_norm


def refuse_non_finite(step: int, *, gradient_norm: float) -> None:
    """Called before the update, with the norm that ``clip`` returned on every rank.

    Raises:
        NonFiniteStep: it is no number, or some rank's loss is none.
    """
    if not math.isfinite(gradient_norm):
        raise NonFiniteStep(
            f"step {step} has gradient norm {gradient_norm}, or a loss that is no number; "
            "lower optimizer.learning_rate or lengthen optimizer.warmup_steps"
        )


class _SumOverRanks:
    """A sum that is on its way while its rank goes on; Gloo's, so no kernel is waited for."""

    def __init__(self, value: int) -> None:
        self._sum = torch.tensor(value)
        self._work: Any = dist.all_reduce(self._sum, async_op=True)

    def get(self) -> int:
        if self._work is not None:
            self._work.wait()
            self._work = None
        return int(self._sum)
