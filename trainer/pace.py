"""How long a rank may make no progress before it is hung, learnt from its latest steps.

A deadline that fits the slowest model is minutes for a model whose steps take
milliseconds. Saves are rarer than any percentile of steps would show, so the step
after one begins or ends has a deadline of its own.

Not covered: a step that takes ten times as long as those before it, and longer than
the shortest deadline; its ranks are taken for hung. A pause of the storage can do that.
"""

import math
from collections import deque
from collections.abc import Sequence

NUM_STEPS = 200
FEWEST_STEPS = 5
"""With fewer known, the longest deadline holds. Those after the first are as uneven as later
ones, and no more: ten times the slowest of five was never needed (tests/trainer/test_pace.py)."""

NUM_STALLS = 8
FEWEST_STALLS = 2
"""Those of the first save, the slowest: its beginning, with a worker to start, and its end."""

TIMES_THE_SLOWEST = 10


def hang_deadline(step_seconds: Sequence[float], *, shortest: float, longest: float) -> float:
    """Ten times the 99th percentile of the steps, between ``shortest`` and ``longest``."""
    if len(step_seconds) < FEWEST_STEPS:
        return longest
    slow_step = sorted(step_seconds)[math.ceil(0.99 * len(step_seconds)) - 1]
    return min(max(TIMES_THE_SLOWEST * slow_step, shortest), longest)


class Pace:
    """The latest steps and stalls of this process, and the deadlines that follow from them."""

    def __init__(self, *, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._step_seconds: deque[float] = deque(maxlen=NUM_STEPS)
        self._stall_seconds: deque[float] = deque(maxlen=NUM_STALLS)
        self._has_begun = False
        self.deadline_seconds = longest

    def begin_attempt(self) -> None:
        """What was learnt before still holds: as many ranks do the same."""
        self._has_begun = False

    def count_step(self, seconds: float) -> None:
        """A step took so long, without stalls. The first one, which compiles, says nothing."""
        if not self._has_begun:
            self._has_begun = True
            return
        self._step_seconds.append(seconds)
        self.deadline_seconds = hang_deadline(
            self._step_seconds, shortest=self._shortest, longest=self._longest
        )

    def count_stall(self, seconds: float) -> None:
        """A save's beginning or end took so long."""
        self._stall_seconds.append(seconds)

    @property
    def deadline_after_save_seconds(self) -> float:
        """A step's deadline, and ten times the slowest recent stall."""
        if len(self._stall_seconds) < FEWEST_STALLS:
            return self._longest
        stall = TIMES_THE_SLOWEST * max(self._stall_seconds)
        return min(self.deadline_seconds + stall, self._longest)
