"""The injector: what is due fires once, whatever process comes after, and is told before."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.victims import injector_for
from trainer.events import read_events
from trainer.faults.injector import FaultInjector
from trainer.faults.suffer import InjectedFault

EXCEPTION = ("exception", 5, 1)
NAME = "1-exception-step-5-rank-1"


def began(run_directory: Path, wall: float) -> None:
    """Leave what the run's first attempt leaves, as if it had begun then."""
    attempt = run_directory / "attempts" / "1"
    attempt.parent.mkdir()
    attempt.touch()
    os.utime(attempt, (wall, wall))


def fires(injector: FaultInjector, step: int) -> str:
    """The name of the exception that is due at ``step``, if one is."""
    try:
        injector.fire_due(step)
    except InjectedFault as fault:
        return str(fault)
    return ""


def test_exception_is_raised_at_its_step_and_named(tmp_path: Path) -> None:
    injector = injector_for(tmp_path, EXCEPTION, rank=1)
    assert fires(injector, 4) == ""
    assert fires(injector, 5) == NAME


def test_another_rank_suffers_nothing(tmp_path: Path) -> None:
    injector_for(tmp_path, EXCEPTION, rank=0).fire_due(5)
    assert list((tmp_path / "faults").iterdir()) == []


def test_rank_zero_suffers_what_is_planned_for_it(tmp_path: Path) -> None:
    assert fires(injector_for(tmp_path, ("exception", 5, 0), rank=0), 5)


def test_a_restored_run_does_not_suffer_it_twice(tmp_path: Path) -> None:
    first = injector_for(tmp_path, EXCEPTION, rank=1)
    assert fires(first, 5) == NAME
    assert fires(first, 5) == ""
    assert fires(injector_for(tmp_path, EXCEPTION, rank=1), 5) == ""


def test_what_another_process_fired_meanwhile_is_seen(tmp_path: Path) -> None:
    waiting = injector_for(tmp_path, EXCEPTION, rank=1)
    assert fires(injector_for(tmp_path, EXCEPTION, rank=1), 5) == NAME
    assert waiting.fired().keys() == {NAME}
    assert fires(waiting, 5) == ""


def test_a_fault_is_told_with_the_step_in_which_it_fired(tmp_path: Path) -> None:
    began(tmp_path, wall=0.0)
    injector = injector_for(tmp_path, EXCEPTION, rank=1, seconds_apart=1.0)
    assert fires(injector, 8) == NAME
    (event,) = read_events(tmp_path)
    assert (event["name"], event["fault"], event["at_step"]) == ("fault_injected", NAME, 8)
    assert (tmp_path / "faults" / NAME).stat().st_mtime <= event["wall"]


def test_the_first_fault_waits_since_the_first_attempt_began(tmp_path: Path) -> None:
    injector = injector_for(tmp_path, EXCEPTION, rank=1, seconds_apart=1000.0)
    began(tmp_path, wall=time.time() - 900)
    assert fires(injector, 50) == ""
    began_earlier = tmp_path / "attempts" / "2"
    began_earlier.touch()
    os.utime(began_earlier, (0, 0))
    assert fires(injector, 50) == NAME


def test_the_next_fault_waits_since_the_one_before_fired(tmp_path: Path) -> None:
    began(tmp_path, wall=0.0)
    plan = (EXCEPTION, ("exception", 6, 1))
    injector = injector_for(tmp_path, *plan, rank=1, seconds_apart=1000.0)
    assert fires(injector, 6) == NAME
    assert fires(injector, 50) == ""
    os.utime(tmp_path / "faults" / NAME, (0, 0))
    assert fires(injector, 50) == "2-exception-step-6-rank-1"


def test_a_rank_whose_faults_have_all_fired_looks_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began(tmp_path, wall=0.0)
    injector = injector_for(tmp_path, EXCEPTION, rank=1, seconds_apart=1.0)
    assert fires(injector, 5) == NAME
    injector.fire_due(6)
    monkeypatch.setattr(injector, "fired", lambda: pytest.fail("it looked"))
    injector.fire_due(7)


PLAN = [("exception", step, rank) for step, rank in ((2, 0), (3, 1), (3, 0), (6, 1), (7, 0))]


@settings(max_examples=40, deadline=None)
@given(restored=st.lists(st.integers(0, 7), min_size=5, max_size=5), is_spaced=st.booleans())
def test_each_fault_fires_once_whatever_the_order_of_restarts(
    restored: list[int], is_spaced: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each failure is followed by an attempt from a step at or before the one that failed."""
    run_directory = tmp_path_factory.mktemp("run")
    began(run_directory, wall=0.0)
    suffered: list[str] = []
    seconds_apart = 1e-9 if is_spaced else None

    def attempt(after: int) -> int:
        """Train on two ranks; the step in which it failed, or that which follows the last."""
        ranks = [
            injector_for(run_directory, *PLAN, rank=rank, seconds_apart=seconds_apart)
            for rank in (0, 1)
        ]
        for step in range(after + 1, 9):
            names = [name for injector in ranks if (name := fires(injector, step))]
            suffered.extend(names)
            if names:
                return step
        return 9

    failed, steps = attempt(0), iter(restored)
    while failed < 9:
        failed = attempt(min(next(steps, 0), failed - 1))
    assert sorted(suffered) == sorted(injector_for(run_directory, *PLAN, rank=0).fired())
    assert len(suffered) == 5
