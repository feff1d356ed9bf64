"""The one error that decides about recovery: trying again cannot help."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CannotTrain(Exception):
    """Every further attempt would meet the same; the message says what is wrong and what to do."""


def usable(make: Callable[[], T]) -> T:
    """What ``make`` returns; input that it refuses ends the run, not this attempt."""
    try:
        return make()
    except ValueError as error:
        raise CannotTrain(str(error)) from error
