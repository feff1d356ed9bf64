"""Where an attempt goes on: the newest state that all ranks can have, from the nearest tier.

Live tensors before a snapshot in memory, that before a peer's, and a checkpoint where it is
newer or memory has none. Every rank calls it, at the same point.
"""

from trainer.checkpoint.checkpointer import Checkpointer
from trainer.distributed import Job
from trainer.errors import CannotTrain
from trainer.settings import TrainerSettings
from trainer.snapshots.snapshots import Snapshots
from trainer.state import TrainState


def take_up(
    settings: TrainerSettings,
    job: Job,
    state: TrainState,
    snapshots: Snapshots,
    checkpointer: Checkpointer,
    *,
    attempt: int,
) -> tuple[int, str]:
    """Fill ``state``; the step that it is of, and the tier: ``none`` and 0 for a new run.

    Raises:
        CannotTrain: the run is longer already than its settings say, or nothing that there is
            can be used.
        OSError: on every rank; the storage fails to answer.
    """
    snapshots.begin(job, state, attempt=attempt, fingerprint=checkpointer.fingerprint)
    remembered = snapshots.restore(checkpointer.durable())
    if remembered:
        step, source = remembered.step, remembered.source.value
    else:
        step = checkpointer.restore()
        source = "durable" if step else "none"
    if step > settings.max_steps:
        raise CannotTrain(
            f"the run was trained to step {step} and max_steps is {settings.max_steps}; "
            "raise max_steps, or give the run a new id"
        )
    return step, source
