"""What wraps the training function, so that it is run again after a failure.

The loop does not know which layer wraps it: it gets an ``Attempt`` and reports
progress to it. A failure that a layer cannot catch ends the process, and the
next layer out (launcher, then Kubernetes) catches that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist

from trainer.settings import RecoveryLayer, TrainerSettings
from trainer.timeouts import Timeouts


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a layer hands to one execution of the training function."""

    store: dist.Store | None
    """Where this attempt's ranks meet; None for the launcher's own store."""

    report_progress: Callable[[], None]
    """Proof of life, called after every step; silence is taken for a hang."""

    report_hang: Callable[[], None] | None = None
    """Called from a thread once this rank hangs: every rank starts again in its process.
    None where only the process's end helps."""


class Layer(Protocol):
    exits_when_hung: bool
    """Whether a hung rank's own watchdog ends the process: nobody else does, or as soon."""

    def run(self, train: Callable[[Attempt], None]) -> None:
        """Call ``train`` until it returns, or raise what this layer cannot recover from."""


def layer_for(
    settings: TrainerSettings, timeouts: Timeouts, *, before_abort: Callable[[], None]
) -> Layer:
    """The layer that the settings name; only its own imports are paid for.

    ``before_abort`` is called where a layer aborts the collectives of a living process.
    """
    match settings.recovery.layer:
        case RecoveryLayer.NONE | RecoveryLayer.POD:
            return OnceLayer()
        case RecoveryLayer.IN_JOB:
            from trainer.recovery.in_job import InJobLayer

            return InJobLayer()
        case RecoveryLayer.IN_PROCESS:
            from trainer.recovery.in_process import InProcessLayer

            return InProcessLayer(settings.recovery, timeouts, before_abort=before_abort)
        case RecoveryLayer.LAYERED:
            from trainer.recovery.layered import LayeredLayer

            return LayeredLayer(settings.recovery, timeouts, before_abort=before_abort)


class OnceLayer:
    """No recovery in the pod: the first failure ends the process, and with it the pod."""

    exits_when_hung = True

    def run(self, train: Callable[[Attempt], None]) -> None:
        train(Attempt(store=None, report_progress=lambda: None))
