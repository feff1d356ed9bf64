"""A small training of one rank, by the update of the real loop, with played collectives.

One that is aborted returns like a whole one, with part of the gradients as they were.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.trainer.ranks import trainer_settings
from trainer.optimization import Optimization, adamw
from trainer.safe_update import update_safely
from trainer.snapshots.copier import ThreadCopier
from trainer.snapshots.gate import Gate
from trainer.state import TrainState

NUM_STEPS = 6


class Collective:
    """Reduces the gradients one by one, until it is aborted; it returns alike in both cases."""

    def __init__(self, before_each: Callable[[], None] = lambda: None) -> None:
        self._before_each = before_each
        self.is_aborted = threading.Event()

    def reduce(self, gradients: list[Tensor]) -> None:
        for gradient in gradients:
            self._before_each()
            if self.is_aborted.is_set():
                return
            gradient.mul_(0.5)  # by the gradients of another rank that are minus half of ours


class Trainer:
    """The loop of one rank; every buffer it fills is one snapshot."""

    def __init__(
        self,
        folder: Path,
        *,
        gate: Gate | None = None,
        copier: ThreadCopier | None = None,
        collective: Collective | None = None,
    ) -> None:
        torch.manual_seed(0)
        settings = trainer_settings(folder, optimizer={"learning_rate": 0.1, "warmup_steps": 1})
        model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
        self.state = TrainState(model, adamw(model, settings.optimizer))
        self.state.step = 0
        job: Any = None  # only the backward pass of the real loop asks it
        self._optimization = Optimization(settings, job=job, state=self.state, end_of_text=0)
        self.gate, self._copier = gate or Gate(), copier
        self._collective = collective or Collective()
        self.at_update: Callable[[], None] = lambda: None
        self.snapshots: dict[int, tuple[Any, list[Tensor]]] = {}

    def tensors(self) -> list[Tensor]:
        return list(self.state.tensors().values())

    def step(self, step: int) -> None:
        """As trainer/loop.py makes one."""
        generator = torch.Generator().manual_seed(step)
        loss = self.state.model(torch.randn(4, 3, generator=generator)).square().sum()
        loss.backward()
        gradients = [parameter.grad for parameter in self.state.model.parameters()]
        self._collective.reduce([gradient for gradient in gradients if gradient is not None])
        update_safely(step, loss.detach(), self._optimization, self)
        self.at_update()
        if self._copier is not None:
            buffer = [torch.full_like(tensor, -1.0) for tensor in self.tensors()]
            copy = self._copier.start([t.detach() for t in self.tensors()], buffer)
            self.snapshots[step] = (copy, buffer)

    def fence(self) -> None:
        if self._copier is not None:
            self._copier.fence()

    def finish(self, loss: float) -> None:
        """Whether a copy is done, each test asks itself."""

    def train(self) -> None:
        for step in range(1, NUM_STEPS + 1):
            self.step(step)
