"""How often a run may start again before it is taken for broken: so many restarts in a window.

Every attempt leaves a claim in the run's folder, whichever layer began it, so their
times say how often the run restarted. Without failures a claim grows old and counts no
more: a run of weeks may fail a hundred times, one that fails at each start may not. A
start that was refused marks its claim, and what came before it is forgiven: who submits
the run again has mended it. Not covered: pods that end before any attempt of theirs was
claimed, which Kubernetes counts by itself.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from trainer.attempts import claim_attempt
from trainer.settings import RecoverySettings

logger = logging.getLogger(__name__)

UNLIMITED_RESTARTS = 1_000_000
"""For the counters that launchers and layers keep themselves: they know neither rates nor
one another."""

_REFUSED = b"over the budget\n"


def claim_within_budget(run_directory: Path, recovery: RecoverySettings) -> tuple[int, str]:
    """The number of this attempt, and why it may not begin, or nothing. Rank 0 calls it."""
    number = claim_attempt(run_directory)
    own = run_directory / "attempts" / str(number)
    claims = [
        (claim.stat().st_mtime, claim.stat().st_size > 0)
        for claim in own.parent.iterdir()
        if claim.name.isdecimal()
    ]
    # By the clock that stamped the others, which on a shared file system is not this node's.
    restarts = restarts_within(
        recovery.restart_window_seconds, claims=claims, now=own.stat().st_mtime
    )
    problem = why_over_budget(restarts, recovery)
    if problem:
        try:
            own.write_bytes(_REFUSED)
        except OSError as error:
            # The refusal stands. Who submits the run again within the window is refused, too.
            logger.warning("%s: cannot be marked as refused (%s)", own, error.strerror)
    return number, problem


def restarts_within(
    window_seconds: float, *, claims: Iterable[tuple[float, bool]], now: float
) -> int:
    """How many of the claims, each a time and whether it was refused, are restarts since then.

    The first of all is none, nor is the first after a refusal.
    """
    times: list[float] = []
    for time, was_refused in sorted(claims):
        times = [] if was_refused else [*times, time]
    return sum(1 for time in times[1:] if time > now - window_seconds)


def why_over_budget(restarts: int, recovery: RecoverySettings) -> str:
    """One line on why a run that restarted so often may not go on; nothing where it may."""
    if restarts <= recovery.max_restarts:
        return ""
    return (
        f"the run restarted {restarts} times within {recovery.restart_window_seconds:g} s, more "
        f"than recovery.max_restarts {recovery.max_restarts}: it is broken rather than unlucky; "
        "read why its attempts failed (attempt_failed in its events, the pods' logs), mend that, "
        "or raise recovery.max_restarts"
    )
