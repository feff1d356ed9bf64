"""Whether what is counted after every restart grows: a robust rule over the later restarts.

The first restarts fill caches, so the last forty count. Something grows if the
median slope over all pairs of restarts (Theil-Sen, which a few odd samples do
not move) exceeds its bound, in the window *and* in its later half, since what only fills
up goes slower and slower; *and* the last ten samples lie above the first ten.

Bounds: counts may not grow at all, so a twentieth a restart (two in forty) is
told apart from a sample that caught a helper thread. Memory comes in pages of
4 KiB and allocators take several at once: four pages a restart and process, which is 16 MiB in
a thousand restarts. ft_launcher is known to grow by 2.5 to 2.9 KiB a restart,
which is below that. Not covered: growth that shows only after more than fifty.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WINDOW = 40
EDGE = 10
COUNT_BOUND = 0.05
MEMORY_BOUND_BYTES = 4 * 4096.0

Sample = Mapping[str, float]
"""By name of the measure; those of memory end in ``_bytes``."""


@dataclass(frozen=True, slots=True)
class Trend:
    measure: str
    first: float
    """Median of the first ten samples of the window."""

    last: float
    slope: float
    """A restart."""

    late_slope: float
    """The same in the later half of the window."""

    bound: float

    @property
    def grows(self) -> bool:
        least = 1.0 if self.bound == COUNT_BOUND else self.bound * EDGE
        steady = min(self.slope, self.late_slope) > self.bound
        return steady and self.last - self.first >= least


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """One for each measure that all samples have.

    Raises:
        ValueError: there are too few samples to say anything.
    """
    window = samples[-WINDOW:]
    if len(window) < WINDOW:
        raise ValueError(f"{len(samples)} samples are too few; {WINDOW} are needed")
    names = sorted(set.intersection(*(set(sample) for sample in window)))
    return [_trend(name, [sample[name] for sample in window]) for name in names]


def theil_sen(values: Sequence[float]) -> float:
    """The median slope over all pairs."""
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((b - a) / (j - i) for (i, a), (j, b) in pairs)


def _trend(name: str, values: Sequence[float]) -> Trend:
    return Trend(
        measure=name,
        first=statistics.median(values[:EDGE]),
        last=statistics.median(values[-EDGE:]),
        slope=theil_sen(values),
        late_slope=theil_sen(values[len(values) // 2 :]),
        bound=MEMORY_BOUND_BYTES if name.endswith("_bytes") else COUNT_BOUND,
    )
