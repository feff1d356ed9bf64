"""The errors that decide about recovery: whether another try can help, and where."""

from collections.abc import Callable
from typing import TypeVar

from trainer import exit_codes

T = TypeVar("T")


class CannotTrain(Exception):
    """Every further attempt would meet the same; the message says what is wrong and what to do."""

    exit_code = exit_codes.CONFIG


class Repeats(CannotTrain):
    """The same failure at the same step again, or too many failures: a bug, not bad luck."""

    exit_code = exit_codes.REPEATED


class NodeUnhealthy(Exception):
    """This node must not take part any more; the message names it and what it lacks."""

    exit_code = exit_codes.NODE_UNHEALTHY


class ContextBroken(Exception):
    """This process can never use its GPU again; a new one on the same node may."""


class LastSaveFailed(OSError):
    """Raised by every rank alike; another attempt goes on from the newest checkpoint."""


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def usable(make: Callable[[], T]) -> T:
    """What ``make`` returns; input that it refuses ends the run, not this attempt."""
    try:
        return make()
    except ValueError as error:
        raise CannotTrain(str(error)) from error
