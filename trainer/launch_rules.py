"""Decides what the end of a launcher means for its pod: the end too, or another launcher in place.

Pure; ``trainer.launching`` acts on it. Not covered: what the Job makes of the code, which
its failure policy says (see ``trainer.exit_codes``).
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from trainer import exit_codes

WRONG_COMMAND_LINE = 2  # argparse's, in every launcher


@dataclass(frozen=True, slots=True)
class Rules:
    """When the pod's first process does what."""

    in_place: bool
    """A launcher that fails in mid-run is started again; else its failure ends the pod."""

    rejoin_seconds: float
    """Launchers are started again for so long while the run makes no new attempt."""

    stopped_seconds: float
    """A process that is stopped for longer is killed."""

    most_starts: int
    """How often workers may start without a new attempt of the run."""

    newest_attempt: Callable[[], int]
    """The run's highest number of an attempt: it grows while the run gets anywhere."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a launcher ended, and what is known by then."""

    code: int
    has_worked: bool
    """A worker had started."""

    final_word: tuple[int, str] | None = None
    signals: tuple[int, ...] = ()
    """That this pod was sent."""

    is_late: bool = False
    """The run has made no new attempt for ``rejoin_seconds``."""


def pod_exit_code(ending: Ending, *, in_place: bool) -> int | None:
    """What the pod exits with; None if the launcher starts again in place.

    A launcher that ends with 0 though a worker had started and none has told of the run's end
    has failed: one rank left with 0 in mid-run, and launchers take that for success.
    """
    if ending.final_word:
        return ending.final_word[0]
    if ending.code == 0 and not ending.has_worked:
        return 0
    code = exit_code_for(
        ending.code or exit_codes.ORDINARY_FAILURE, was_stopped=signal.SIGTERM in ending.signals
    )
    if ending.signals or ending.is_late:
        return code
    if ending.has_worked:
        return None if in_place else code
    return exit_codes.CONFIG if ending.code == WRONG_COMMAND_LINE else None


def exit_code_for(launcher_code: int, *, was_stopped: bool) -> int:
    """What the pod exits with: success, stopped on request, or the launcher's own failure."""
    if launcher_code == 0:
        return 0
    if was_stopped:
        return exit_codes.STOPPED_BY_SIGTERM
    return 128 - launcher_code if launcher_code < 0 else launcher_code
