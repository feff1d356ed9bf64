"""The pace of a run: deadlines by hand, and what holds whatever the steps were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.pace import Pace, hang_deadline

SECONDS = st.floats(min_value=0.001, max_value=1000)


def pace_of(*step_seconds: float) -> Pace:
    pace = Pace(shortest=5, longest=120)
    for seconds in step_seconds:
        pace.count_step(seconds)
    return pace


def test_fast_steps_have_the_shortest_deadline() -> None:
    assert pace_of(*[0.03] * 100).deadline_seconds == 5


def test_slow_steps_have_ten_times_their_99th_percentile() -> None:
    # Of 200 steps, two are slower than the 99th percentile.
    steps = [2.0] * 190 + [3.0] * 8 + [11.0] * 2
    assert hang_deadline(steps, shortest=5, longest=120) == 30


def test_the_slowest_steps_never_exceed_the_longest_deadline() -> None:
    assert pace_of(*[60.0] * 50).deadline_seconds == 120


def test_until_five_steps_are_known_the_longest_deadline_holds() -> None:
    assert pace_of(*[0.03] * 5).deadline_seconds == 120  # the first is not counted
    assert pace_of(*[0.03] * 6).deadline_seconds == 5


@pytest.mark.parametrize(
    "steps",
    [
        # Four ranks on two cores beside other runs: the most uneven beginnings that were seen.
        (0.688, 0.158, 0.060, 0.063, 0.196, 0.673, 0.592, 0.425, 0.592),
        (0.864, 0.143, 0.180, 0.476, 0.196, 0.170, 0.106, 0.094, 0.920),
        (0.478, 0.102, 0.072, 0.159, 0.067, 0.065, 0.111, 0.055, 0.740),
        (1.723, 0.297, 1.035, 1.137, 0.492, 0.728, 0.870, 0.950, 1.149),
    ],
)
def test_uneven_first_steps_are_not_taken_for_a_hang(steps: tuple[float, ...]) -> None:
    pace = Pace(shortest=0.001, longest=120)  # only their own pace protects them
    for seconds in steps:
        assert seconds < pace.deadline_seconds
        pace.count_step(seconds)
    assert pace.deadline_seconds < 120


@given(st.lists(SECONDS, min_size=5, max_size=5), st.lists(st.floats(0.0, 9.99), max_size=100))
def test_a_step_that_is_less_than_ten_times_the_slowest_before_it_is_never_a_hang(
    first: list[float], ratios: list[float]
) -> None:
    """For as long as the percentile is the slowest of all, which is that of a hundred steps."""
    steps = list(first)
    for ratio in ratios[: 99 - len(first)]:
        steps.append(min(ratio * max(steps), 1e6))
        assert steps[-1] < hang_deadline(steps[:-1], shortest=0.001, longest=1e9)


def test_the_first_step_of_an_attempt_is_not_counted() -> None:
    assert pace_of(90.0, *[0.03] * 5).deadline_seconds == 5


def test_steps_long_ago_are_forgotten() -> None:
    assert pace_of(0.03, *[3.0] * 50, *[0.03] * 197).deadline_seconds == 30
    assert pace_of(0.03, *[3.0] * 50, *[0.03] * 200).deadline_seconds == 5


def test_a_slow_rank_is_not_hung() -> None:
    """Twenty steps of half a second among those of 30 ms, which the `slow` fault makes."""
    assert pace_of(*[0.03] * 100).deadline_seconds > 0.53


def test_a_step_after_a_save_may_take_ten_stalls_more() -> None:
    pace = pace_of(*[0.03] * 30)
    pace.count_stall(2.0)
    assert pace.deadline_after_save_seconds == 120  # of one save, its beginning alone
    pace.count_stall(0.5)
    assert pace.deadline_after_save_seconds == 25


def test_the_first_save_that_starts_its_worker_is_forgotten() -> None:
    pace = pace_of(*[0.03] * 30)
    for seconds in (8.0, *[0.5] * 8):
        pace.count_stall(seconds)
    assert pace.deadline_after_save_seconds == 10


@given(st.lists(SECONDS, max_size=300), SECONDS, SECONDS)
def test_the_deadline_stays_within_its_bounds(steps: list[float], one: float, two: float) -> None:
    shortest, longest = sorted((one, two))
    assert shortest <= hang_deadline(steps, shortest=shortest, longest=longest) <= longest


@given(st.lists(SECONDS, min_size=5, max_size=200), st.floats(min_value=1, max_value=100))
def test_slower_steps_never_shorten_the_deadline(steps: list[float], factor: float) -> None:
    slower = [factor * seconds for seconds in steps]
    deadline = hang_deadline(steps, shortest=5, longest=1e6)
    assert hang_deadline(slower, shortest=5, longest=1e6) >= deadline


@given(st.lists(SECONDS, min_size=5, max_size=200))
def test_no_more_than_one_step_in_a_hundred_comes_near_the_deadline(steps: list[float]) -> None:
    deadline = hang_deadline(steps, shortest=0.001, longest=1e6)
    near = sum(10 * seconds > deadline * (1 + 1e-9) for seconds in steps)
    assert near <= len(steps) / 100


@pytest.mark.parametrize("seconds", [5.0, 60.0])
def test_without_stalls_a_save_changes_nothing_for_a_step(seconds: float) -> None:
    pace = pace_of(*[seconds] * 30)
    for _ in range(4):
        pace.count_stall(0.0)
    assert pace.deadline_after_save_seconds == pace.deadline_seconds
