"""A run may restart so often in a window, by whichever layer; numbers by hand."""

import os
from pathlib import Path

import pytest

from trainer.recovery.budget import claim_within_budget, restarts_within, why_over_budget
from trainer.settings import RecoverySettings

TWO_A_MINUTE = RecoverySettings(max_restarts=2, restart_window_seconds=60)


def kept(*times: float) -> list[tuple[float, bool]]:
    return [(time, False) for time in times]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (kept(100), 0),  # the first start is no restart
        (kept(0, 30, 50, 100), 2),  # 40 is the edge: 50 and 100
        (kept(0, 40, 100), 1),  # exactly a window ago is over
        (kept(100, 50, 0, 90), 3),  # in whatever order the folder lists them
        ([*kept(60, 70), (80, True), *kept(90, 95, 100)], 2),  # forgiven, and 90 is a start
    ],
)
def test_restarts_in_the_window_are_counted(
    claims: list[tuple[float, bool]], expected: int
) -> None:
    assert restarts_within(60, claims=claims, now=100) == expected


def test_one_restart_more_than_the_budget_says_how_many_in_how_long_and_what_to_do() -> None:
    assert why_over_budget(2, TWO_A_MINUTE) == ""
    problem = why_over_budget(3, TWO_A_MINUTE)
    assert problem.startswith("the run restarted 3 times within 60 s, more than")
    assert "raise recovery.max_restarts" in problem


def test_a_run_without_restarts_is_refused_its_second_attempt_alone(tmp_path: Path) -> None:
    none = RecoverySettings(max_restarts=0, restart_window_seconds=60)
    first, second, submitted_again = (claim_within_budget(tmp_path, none) for _ in range(3))
    assert first == (1, "")
    assert second[0] == 2
    assert "restarted 1 times" in second[1]
    assert submitted_again == (3, "")


def test_failures_of_long_ago_cost_nothing(tmp_path: Path) -> None:
    for number in range(1, 6):
        assert claim_within_budget(tmp_path, RecoverySettings())[0] == number
        claim = tmp_path / "attempts" / str(number)
        os.utime(claim, (claim.stat().st_mtime - 61,) * 2)
    assert claim_within_budget(tmp_path, TWO_A_MINUTE) == (6, "")
    assert claim_within_budget(tmp_path, TWO_A_MINUTE) == (7, "")
