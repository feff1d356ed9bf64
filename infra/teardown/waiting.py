"""How a step waits: it looks, says what it waits for, and gives up after a stated time."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


class StepFailed(RuntimeError):
    """A step of the teardown did not come to its end; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Pace:
    """All in seconds."""

    poll_seconds: float = 10.0
    say_again_seconds: float = 60.0
    """How long nothing is printed while nothing changes."""

    pods_seconds: float = 300.0
    """Beyond the pods' own grace period, in which they save a last checkpoint."""

    objects_seconds: float = 300.0
    """For claim and volume, which wait for their finalizers."""

    stack_seconds: float = 3600.0
    """For one attempt. Network interfaces of a Lambda in a VPC alone may take 40 minutes."""

    stack_attempts: int = 4
    retry_seconds: float = 120.0
    """Before a stack is tried again: EKS leaves network interfaces for minutes."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_until_gone(
    pace: Pace, limit_seconds: float, look: Callable[[], str | None], *, remedy: str
) -> None:
    """``look`` says what is still there, None once it is gone.

    Raises:
        StepFailed: something was there for ``limit_seconds``.
    """
    started = pace.now()
    said, said_at = "", started
    while (there := look()) is not None:
        waited = pace.now() - started
        if waited >= limit_seconds:
            raise StepFailed(f"{there}; gave up after {limit_seconds:.0f} s; {remedy}")
        if there != said or pace.now() - said_at >= pace.say_again_seconds:
            logger.info("Waiting, %.0f s so far: %s", waited, there)
            said, said_at = there, pace.now()
        pace.sleep(pace.poll_seconds)
