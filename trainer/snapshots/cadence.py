"""How many steps apart snapshots are taken, so that they cost no more than they may.

A snapshot costs what steps with one took longer than steps without; that a copy is far shorter
than a step does not say so (measured: a third of it, and 5% more). Until that is known, which
takes a few snapshots an attempt, there is one every other step.

All that is fed is agreed, the same on every rank, so every rank comes to the same answer.
One is made anew for each attempt, on all ranks: a rank that had learnt more would go on at
other steps than the rest. Noise does not move the interval to and fro: it is thought over
ever less often, and never lowered to one that was measured to be too dear in this attempt.

Not covered: what a snapshot costs elsewhere than in the steps.
"""

import logging
import math
from collections import deque
from statistics import median

logger = logging.getLogger(__name__)

FEWEST_SAMPLES = 8
MOST_SAMPLES = 256
"""Of steps with a snapshot, and of others. At the fewest their cost is known, and the interval
chosen; it is thought over at twice as many, and so on up to the most."""

MARGIN = 0.75
"""Of the budget, for a lower interval: one that is just cheap enough is none the next time."""

FIRST_INTERVAL = 2
"""Until steps with and without a copy are known: neither kind without the other."""

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
        self._with: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._without: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._copies: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._num_samples = 0
        self._next_choice = FEWEST_SAMPLES
        self._too_dear = 0
        """The longest interval that was measured to be too dear in this attempt."""

        self.interval = fixed_interval or FIRST_INTERVAL

    def is_due(self, step: int) -> bool:
        """Whether the state after ``step`` is to be taken."""
        return step % self.interval == 0

    def count_step(
        self, seconds: float, *, copied: bool, copy_seconds: float | None = None
    ) -> None:
        """All ranks have made a step; ``seconds`` without saves, ``copied`` if beside a copy.

        ``copy_seconds`` is what the latest copy took, if that has become known.
        """
        self._num_steps += 1
        if copy_seconds is not None:
            self._copies.append(copy_seconds)
        if self._num_steps > NUM_WARM_UP:
            (self._with if copied else self._without).append(seconds)
            self._num_samples += copied
        if self._is_fixed or not (self._copies and self._with and self._without):
            return
        if self._num_samples >= self._next_choice:
            self._next_choice = _after(self._num_samples)
            self._choose()

    def _choose(self) -> None:
        copy = median(self._copies)
        with_copy, without = median(self._with), median(self._without)
        if min(len(self._with), len(self._without)) < FEWEST_SAMPLES:
            self._next_choice = self._num_samples + 1
            return
        # A copy makes no step shorter, but at an interval of 1 those without are long past.
        step = min(with_copy, without)
        added = max(with_copy - without, 0.0)
        needed = smallest_interval(added, step, self._budget)
        if needed > self.interval:
            self._too_dear = max(self._too_dear, self.interval)
            self._change(max(needed, self._too_dear + 1), step, copy)
        else:
            lower = smallest_interval(added, step, MARGIN * self._budget)
            self._change(min(self.interval, max(lower, self._too_dear + 1)), step, copy)

    def _change(self, interval: int, step: float, copy: float) -> None:
        if interval == self.interval:
            return
        self.interval = interval
        logger.info(
            "A snapshot every %d steps: a step takes %.3f s, a copy %.3f s", interval, step, copy
        )


def _after(num_samples: int) -> int:
    """With how many samples the interval is thought over again."""
    return max(FEWEST_SAMPLES, num_samples + min(num_samples, MOST_SAMPLES))
