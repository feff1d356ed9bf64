"""The one order in which a step may change the state, so that what is kept of it is never torn.

Fence, wait, gate: after the host's wait for the step's collectives and for the copy of the state
before it, and only if nobody had begun to abort them, the state is changed.
``tests/trainer/snapshots/test_safety.py`` runs this order, and shows what happens without each.
"""

from typing import Protocol

from torch import Tensor

from trainer.optimization import Optimization, refuse_non_finite, wait_for_gpu
from trainer.snapshots.gate import Gate


class Keeper(Protocol):
    """What copies the state beside the step: ``Snapshots``."""

    gate: Gate

    def fence(self) -> None:
        """The host's next wait includes the copy. Raises where the copy failed."""

    def finish(self, loss: float) -> None:
        """The copy is whole; ``loss`` is this rank's own of the step beside it."""


def update_safely(step: int, loss: Tensor, optimization: Optimization, keeper: Keeper) -> float:
    """Clip the gradients of ``step`` and update by them; this rank's ``loss`` as a number.

    Raises:
        GateClosed: the collectives of the step were being aborted; the state is as it was.
        ArithmeticError: the gradients are not finite; the state is as it was.
    """
    unseen_norm = optimization.clip()
    keeper.fence()
    share, norm = wait_for_gpu(loss, unseen_norm)
    keeper.gate.refuse_if_closed()
    refuse_non_finite(step, gradient_norm=norm)
    keeper.finish(share)
    optimization.update(step)
    return share
