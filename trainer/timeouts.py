"""Every timeout of a run, derived from three numbers so that they fire in the right order.

NCCL collectives can be aborted, so there the collective's own timeout comes
last; gloo's cannot, so there it must free a blocked rank before anyone loses
patience with it. A chain in the wrong order turns a recoverable hang into a
killed process, so it is refused here.

============ =================================================================
gloo (cpu)   collective < soft < hard < {barrier, heartbeat}
NCCL (cuda)  agreement < soft < hard < {barrier, heartbeat, collective}
both         drain < terminate < grace; startup <= barrier
============ =================================================================

Not covered: whether ``hang_seconds`` exceeds the longest step of this model.
"""

import math
from dataclasses import dataclass

from trainer.settings import TimeoutSettings

GLOO_COLLECTIVE_FRACTION = 0.75
MARGIN_FRACTION = 0.25
SHORTEST_MARGIN_SECONDS = 5.0
TERMINATE_AFTER_DRAIN_SECONDS = 30
"""To end a step, give a save up in words and leave, before the launcher kills the ranks."""

GRACE_AFTER_DRAIN_SECONDS = 60

# Each earlier timeout must be below the later one, or the later one's remedy never comes to act.
_CHAINS = {
    "cpu": (
        ("collective_seconds", "soft_seconds"),
        ("soft_seconds", "hard_seconds"),
        ("hard_seconds", "barrier_seconds"),
        ("hard_seconds", "heartbeat_seconds"),
    ),
    "cuda": (
        ("agreement_seconds", "soft_seconds"),
        ("soft_seconds", "hard_seconds"),
        ("hard_seconds", "barrier_seconds"),
        ("hard_seconds", "heartbeat_seconds"),
        ("hard_seconds", "collective_seconds"),
    ),
}


@dataclass(frozen=True, slots=True)
class Timeouts:
    device: str
    """``cuda`` (NCCL) or ``cpu`` (gloo); it decides which chain holds."""

    agreement_seconds: float
    """Of the ranks' agreement at the end of a step, which gloo carries on every device."""

    collective_seconds: float
    """Of one collective on the model's shards. Ranks that still start up may need longer than
    this to find each other; ``barrier_seconds`` bounds that wait."""

    soft_seconds: float
    """In process: no progress for this long, and the rank is asked to abort and re-enter."""

    hard_seconds: float
    """In process: no progress for this long, and the process is killed."""

    barrier_seconds: float
    """The longest wait for the other ranks to arrive, whether they start or restart."""

    heartbeat_seconds: float
    """ft_launcher kills a worker that has been silent for this long."""

    initial_heartbeat_seconds: float
    """The same for a worker that has not sent its first heartbeat yet."""

    drain_seconds: float
    """From SIGTERM, the trainer waits no longer for any save."""

    terminate_seconds: float
    """From SIGTERM, the launcher kills what has not ended by itself."""

    grace_seconds: int
    """Whole seconds from SIGTERM to SIGKILL of the pod, as Kubernetes takes them."""

    def __post_init__(self) -> None:
        if self.device not in _CHAINS:
            raise ValueError(f"device {self.device!r} has no known timeouts; take 'cuda' or 'cpu'")
        for earlier, later in _CHAINS[self.device]:
            if getattr(self, earlier) >= getattr(self, later):
                raise ValueError(
                    f"on {self.device}, {earlier} {getattr(self, earlier):g} must be below {later} "
                    f"{getattr(self, later):g}; lower the first or raise the second"
                )
        if self.barrier_seconds < self.initial_heartbeat_seconds:
            raise ValueError(
                f"barrier_seconds {self.barrier_seconds:g} is below initial_heartbeat_seconds "
                f"{self.initial_heartbeat_seconds:g}, so ranks would give up on one that still "
                "starts; raise barrier_seconds"
            )
        if not self.drain_seconds < self.terminate_seconds < self.grace_seconds:
            raise ValueError(
                f"drain_seconds {self.drain_seconds:g} must be below terminate_seconds "
                f"{self.terminate_seconds:g}, and that below grace_seconds {self.grace_seconds}; "
                "raise the later one"
            )


def derive_timeouts(settings: TimeoutSettings, *, device: str) -> Timeouts:
    """The whole chain for ``device``.

    In process a hang is noticed ``hang_seconds`` after the last progress; ft_launcher, which
    must let that come first, notices it two margins later. A margin has a floor, because what
    fills it does not shrink with the step: polling, the abort, the stacks that are dumped.
    """
    soft = settings.hang_seconds
    margin = max(MARGIN_FRACTION * soft, SHORTEST_MARGIN_SECONDS)
    hard = soft + margin
    heartbeat = hard + margin
    return Timeouts(
        device=device,
        agreement_seconds=GLOO_COLLECTIVE_FRACTION * soft,
        collective_seconds=(
            GLOO_COLLECTIVE_FRACTION * soft if device == "cpu" else heartbeat + margin
        ),
        soft_seconds=soft,
        hard_seconds=hard,
        barrier_seconds=max(settings.startup_seconds, heartbeat + margin),
        heartbeat_seconds=heartbeat,
        initial_heartbeat_seconds=settings.startup_seconds,
        drain_seconds=settings.drain_seconds,
        terminate_seconds=settings.drain_seconds + TERMINATE_AFTER_DRAIN_SECONDS,
        grace_seconds=math.ceil(settings.drain_seconds + GRACE_AFTER_DRAIN_SECONDS),
    )
