"""The interval between snapshots: within its budget, alike on all ranks, and steady."""

import logging
import math
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.snapshots.cadence import Cadence, smallest_interval

BUDGET = 0.01
seconds = st.floats(0.001, 100)
ratios = st.floats(0.01, 100)
shares = st.floats(0, 1)


def intervals(
    cadence: Cadence,
    *,
    step: float,
    copy: float,
    added: float,
    num_steps: int,
    noise: random.Random | None = None,
    width: float = 0.0,
) -> list[int]:
    """The interval after each of ``num_steps``, each noisy by a share of up to ``width``."""

    def noisy(value: float) -> float:
        return value * (1 + width * noise.uniform(-1, 1)) if noise else value

    seen = []
    begun = False
    for number in range(1, num_steps + 1):
        took = noisy(step + added if begun else step)
        cadence.count_step(took, copied=begun, copy_seconds=noisy(copy) if begun else None)
        begun = cadence.is_due(number)
        seen.append(cadence.interval)
    return seen


def changes(seen: list[int]) -> list[int]:
    """Each value that the interval took, in order."""
    return [seen[0], *(after for before, after in pairwise(seen) if before != after)]


def test_a_snapshot_of_a_hundredth_of_a_step_is_within_a_budget_of_one_percent() -> None:
    assert smallest_interval(0.001, 0.1, 0.01) == 1
    assert smallest_interval(0.0011, 0.1, 0.01) == 2
    assert smallest_interval(0.01, 0.1, 0.01) == 10
    assert smallest_interval(0.0, 0.1, 0.01) == 1


@given(added=seconds, step=seconds, budget=st.floats(0.001, 0.5))
def test_the_interval_keeps_to_the_budget_and_no_smaller_one_does(
    added: float, step: float, budget: float
) -> None:
    interval = smallest_interval(added, step, budget)
    allowed = budget * step
    assert added <= interval * allowed * (1 + 1e-9)
    assert interval == 1 or added > (interval - 1) * allowed * (1 - 1e-9)


def test_a_copy_far_shorter_than_a_step_counts_by_what_it_adds() -> None:
    # As measured on GPUs: a third of the step, and beside it 5%.
    seen = intervals(Cadence(BUDGET), step=0.44, copy=0.15, added=0.022, num_steps=200)
    assert seen[-1] in (6, 7)


def test_a_copy_that_adds_nothing_is_made_in_every_step() -> None:
    seen = intervals(Cadence(BUDGET), step=0.44, copy=0.4, added=0.0, num_steps=60)
    assert seen[-1] == 1


@given(copy=seconds, ratio=ratios)
def test_until_their_cost_is_measured_there_is_a_snapshot_every_other_step(
    copy: float, ratio: float
) -> None:
    step = ratio * copy
    seen = intervals(Cadence(BUDGET), step=step, copy=copy, added=copy / 2, num_steps=60)
    assert set(seen[:15]) == {2}
    assert seen[30] >= smallest_interval(copy / 2 * (1 - 1e-9), step, BUDGET)


@given(copy=seconds, ratio=st.floats(0.5, 100), added=shares)
def test_what_snapshots_are_measured_to_cost_stays_within_the_budget(
    copy: float, ratio: float, added: float
) -> None:
    step = ratio * copy
    cost = added * copy
    num_steps = 10 * smallest_interval(cost, step, BUDGET) + 50
    seen = intervals(Cadence(BUDGET), step=step, copy=copy, added=cost, num_steps=num_steps)
    least = smallest_interval(cost * (1 - 1e-9), step, BUDGET)
    assert cost <= seen[-1] * BUDGET * step * (1 + 1e-6)
    assert seen[-1] <= math.ceil(least / 0.75)


@given(data=st.data(), budget=st.floats(0.001, 0.1))
def test_ranks_that_are_told_the_same_choose_the_same(data: st.DataObject, budget: float) -> None:
    ranks = [Cadence(budget) for _ in range(3)]
    for _ in range(data.draw(st.integers(0, 60))):
        step, copied = data.draw(seconds), data.draw(st.booleans())
        copy = data.draw(seconds | st.none())
        for rank in ranks:
            rank.count_step(step, copied=copied, copy_seconds=copy)
        assert len({rank.interval for rank in ranks}) == 1


@pytest.mark.parametrize("ratio", [0.5, 1.7, 1.9, 2.0, 2.1, 2.2, 2.3, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_move_the_interval_to_and_fro(ratio: float, seed: int) -> None:
    seen = intervals(
        Cadence(BUDGET),
        step=ratio,
        copy=1.0,
        added=0.07,
        num_steps=5000,
        noise=random.Random(seed),
        width=0.05,
    )
    values = changes(seen)
    assert len(values) <= 8  # in 5,000 steps
    too_dear = [low for low, high in pairwise(values[2:]) if low < high]
    assert too_dear == sorted(set(too_dear))


def test_an_interval_that_was_measured_to_be_too_dear_is_never_tried_again() -> None:
    cadence = Cadence(BUDGET)
    # 2 and 10 would be within the budget, 3 and 14 are with a margin.
    assert intervals(cadence, step=1, copy=1, added=0.02, num_steps=1000)[-1] == 3
    assert intervals(cadence, step=1, copy=1, added=0.095, num_steps=3000)[-1] == 10
    # Now it costs nothing; but what was once too dear may be so again.
    assert intervals(cadence, step=1, copy=1, added=0.0, num_steps=9000)[-1] == 4


def test_a_fixed_interval_is_kept_to_whatever_it_costs() -> None:
    seen = intervals(Cadence(BUDGET, 7), step=1, copy=50, added=50, num_steps=100)
    assert set(seen) == {7}
    assert [step for step in range(1, 30) if Cadence(BUDGET, 7).is_due(step)] == [7, 14, 21, 28]


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    intervals(Cadence(BUDGET), step=0.45, copy=0.17, added=0.003, num_steps=200)
    assert [record.getMessage() for record in caplog.records] == [
        "A snapshot every 1 steps: a step takes 0.450 s, a copy 0.170 s"
    ]


def test_the_cadence_needs_no_torch() -> None:
    code = "import sys, trainer.snapshots.cadence; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
