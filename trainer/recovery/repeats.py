"""A failure that comes again at the same step is a bug in the program, and ends the run.

The rank that fails notes it in ``failures/`` of the run's folder before it dies, so that
whichever process tries next finds the note. Failures that may come back without a bug
are never noted: injected ones, those that only echo another rank's end, a broken GPU,
and storage.

Not covered: a bug that kills the process without an exception, which the run's budget of
restarts ends; and a folder that cannot be written, where nothing counts.
"""

import hashlib
import logging
import re
from pathlib import Path

from trainer import echoes
from trainer.errors import CannotTrain, NodeUnhealthy, Repeats, first_line

logger = logging.getLogger(__name__)

_COME_AND_GO = echoes.NAMES | {
    "InjectedFault",
    "RankMonitorClientError",  # ft_launcher's rank monitor is gone
    "AcceleratorError",  # the GPU's context is broken
    "ContextBroken",
    "OutOfMemoryError",
    "DoubtfulState",  # another attempt takes an older one
    "GateClosed",
}
"""By name, with all that derives from them: the layers and checks that raise them come later."""

_PASSING = re.compile(r"cuda error|device-side assert|injected", re.IGNORECASE)
_VARIES = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


def may_be_a_bug(error: BaseException) -> bool:
    """Whether ``error`` speaks of the program, not of hardware, storage or another rank."""
    if not isinstance(error, Exception):
        return False
    if isinstance(error, CannotTrain | NodeUnhealthy | OSError):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names & _COME_AND_GO and not (
        echoes.speaks_of_another_rank(str(error)) or _PASSING.search(str(error))
    )


def name_of_failure(step: int, error: BaseException) -> str:
    """The same for the same failure at the same step, whatever addresses and counts it names."""
    message = _VARIES.sub("#", str(error))
    digest = hashlib.sha256(message.encode(errors="replace")).hexdigest()[:12]
    return f"step-{step}-{type(error).__name__}-{digest}"


def note_failure(run_directory: Path, *, step: int, error: BaseException, attempt: int) -> None:
    """Remember that ``step`` failed with ``error`` in this attempt.

    Raises:
        Repeats: an earlier attempt failed alike.
    """
    if not may_be_a_bug(error):
        return
    folder = run_directory / "failures" / name_of_failure(step, error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(attempt)).touch()
        # Ranks that fail together in one attempt have all failed once.
        again = any(path.name != str(attempt) for path in folder.iterdir())
    except OSError as problem:
        logger.warning("%s: cannot be written (%s)", folder, problem.strerror)
        return
    if again:
        raise Repeats(
            f"step {step} failed twice with {type(error).__name__}: {first_line(error)}; the "
            f"traceback is above: mend the program ({folder} remembers the attempts)"
        ) from error
