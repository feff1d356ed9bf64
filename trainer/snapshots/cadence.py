"""How many steps apart snapshots are taken, so that they cost no more than they may.

Where a step lasts well over twice the copy, the copy hides behind it: a snapshot of every
step. Else a snapshot costs what steps with one took longer than steps without, as measured,
and until that is known as much as if nothing of the copy were hidden.

All that is fed is agreed, the same on every rank, so every rank comes to the same answer.
One is made anew for each attempt, on all ranks: a rank that had learnt more would go on at
other steps than the rest. An interval that was found too dear is never tried again in an
attempt, so noise cannot move it to and fro.

Not covered: what a snapshot costs elsewhere than in the steps.
"""

import logging
import math
from collections import deque
from statistics import median

logger = logging.getLogger(__name__)

HIDES_AT = 2.2
"""Steps this many times as long as the copy cost under 1% more with one (measured: 0.7%)."""

HIDES_UNTIL = 1.8
"""Where it did hide, noise around the limit above says nothing yet."""

NUM_SAMPLES = 64
FEWEST_SAMPLES = 8
"""Of steps with a snapshot, and of others: with fewer, their difference is not known."""

NUM_WARM_UP = 2
"""Steps that take longer anyway, since kernels are chosen and memory is first used."""


def smallest_interval(added_seconds: float, step_seconds: float, budget: float) -> int:
    """The fewest steps apart at which ``added_seconds`` a snapshot are within the budget.

    ``budget`` is a share of the time of the steps, above 0.
    """
    return max(1, math.ceil(added_seconds / (budget * step_seconds)))


class Cadence:
    """``fixed_interval``, in steps, is kept to whatever it costs; None: it is chosen."""

    def __init__(self, budget: float, fixed_interval: int | None = None) -> None:
        self._budget = budget
        self._is_fixed = fixed_interval is not None
        self._num_steps = 0
        self._with: deque[float] = deque(maxlen=NUM_SAMPLES)
        self._without: deque[float] = deque(maxlen=NUM_SAMPLES)
        self._copies: deque[float] = deque(maxlen=NUM_SAMPLES)
        self._hides = False
        self._too_dear = 0
        """The longest interval that was found too dear in this attempt."""

        self.interval = fixed_interval or 1
        """In steps; 1 until the first copy is known, for there is nothing to choose by."""

    def is_due(self, step: int) -> bool:
        """Whether the state after ``step`` is to be taken: the same steps in every attempt."""
        return step % self.interval == 0

    def count_step(
        self, seconds: float, *, copied: bool, copy_seconds: float | None = None
    ) -> None:
        """All ranks have made a step; ``seconds`` without saves, ``copied`` if beside a copy.

        ``copy_seconds`` is what the latest copy took, if that has become known.
        """
        self._num_steps += 1
        if self._num_steps > NUM_WARM_UP:
            (self._with if copied else self._without).append(seconds)
        if copy_seconds is not None:
            self._copies.append(copy_seconds)
        if not self._is_fixed and self._copies and (self._with or self._without):
            self._choose()

    def _choose(self) -> None:
        copy = median(self._copies)
        # A copy makes no step shorter; steps without one may be long past, or there were none.
        step = min(median(steps) for steps in (self._with, self._without) if steps)
        self._hides = step >= (HIDES_UNTIL if self._hides else HIDES_AT) * copy
        if self._hides:
            self._change(1, step, copy)
            return
        added = self._added_seconds(copy)
        needed = smallest_interval(added, step, self._budget)
        if needed > self.interval:
            self._too_dear = max(self._too_dear, self.interval)
            self._change(needed, step, copy)
        elif needed < self.interval and self._is_measured():
            self._change(max(needed, self._too_dear + 1), step, copy)

    def _is_measured(self) -> bool:
        return min(len(self._with), len(self._without)) >= FEWEST_SAMPLES

    def _added_seconds(self, copy: float) -> float:
        if not self._is_measured():
            return copy
        return max(0.0, median(self._with) - median(self._without))

    def _change(self, interval: int, step: float, copy: float) -> None:
        if interval == self.interval:
            return
        self.interval = interval
        logger.info(
            "A snapshot every %d steps: a step takes %.3f s, a copy %.3f s", interval, step, copy
        )
