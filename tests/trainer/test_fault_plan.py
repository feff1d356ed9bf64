"""The plan of faults: the published schedule, and what holds for every seed."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deployment
from trainer.faults.plan import Fault, faults_due, on_ranks, plan_faults
from trainer.faults.settings import FaultKind, FaultSettings

PUBLISHED = FaultSettings(count=5)
REHEARSAL = Path(__file__).parents[2] / "deployments" / "rehearsal.yaml"


def test_seed_42_gives_the_published_schedule() -> None:
    plan = plan_faults(PUBLISHED, max_steps=2000)
    assert [(fault.step, fault.rank, fault.kind.value) for fault in plan] == [
        (62, 4, "exception"),
        (239, 12, "exception"),
        (574, 12, "hang"),
        (1320, 2, "exception"),
        (1529, 1, "exception"),
    ]


def test_a_fault_is_named_by_what_was_drawn() -> None:
    plan = plan_faults(PUBLISHED, max_steps=2000)
    assert plan[0].name == "1-exception-step-62-rank-4"
    assert plan[2].name == "3-hang-step-574-rank-12"


def test_fewer_ranks_take_the_same_plan_modulo_their_number() -> None:
    plan = plan_faults(PUBLISHED, max_steps=2000)
    assert [fault.rank for fault in on_ranks(plan, 8)] == [4, 4, 4, 2, 1]
    assert [fault.rank for fault in on_ranks(plan, 2)] == [0, 0, 0, 0, 1]


def test_names_outlive_a_change_of_world_size() -> None:
    plan = plan_faults(PUBLISHED, max_steps=2000)
    assert [fault.name for fault in on_ranks(plan, 3)] == [fault.name for fault in plan]


def test_sixteen_ranks_and_more_take_the_plan_as_drawn() -> None:
    plan = plan_faults(PUBLISHED, max_steps=2000)
    assert on_ranks(plan, 16) == plan
    assert on_ranks(plan, 64) == plan


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(0, 20),
    after=st.integers(0, 30),
    room=st.integers(20, 40),
    include_rank_zero=st.booleans(),
)
def test_every_plan_keeps_its_bounds(
    seed: int, count: int, after: int, room: int, include_rank_zero: bool
) -> None:
    settings = FaultSettings(
        count=count, seed=seed, after_step=after, include_rank_zero=include_rank_zero
    )
    max_steps = after + room + 1
    plan = plan_faults(settings, max_steps=max_steps)
    assert len(plan) == count
    assert all(after < fault.step < max_steps for fault in plan)
    assert all(a.step < b.step for a, b in pairwise(plan))
    assert all((0 if include_rank_zero else 1) <= fault.rank <= 15 for fault in plan)
    assert plan == plan_faults(settings, max_steps=max_steps)


def test_rank_zero_is_hit_when_included() -> None:
    settings = FaultSettings(count=100, include_rank_zero=True)
    assert 0 in {fault.rank for fault in plan_faults(settings, max_steps=2000)}


def test_more_faults_than_steps_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"faults.count 5 does not fit in the 3 steps"):
        plan_faults(PUBLISHED, max_steps=14)


def test_no_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="world_size must be at least 1, got 0"):
        on_ranks((), 0)


def test_a_fault_is_due_once_on_its_step_and_rank() -> None:
    fault = Fault(name="1-hang-step-7-rank-1", step=7, rank=1, kind=FaultKind.HANG)
    assert faults_due((fault,), step=7, rank=1, already_fired=frozenset()) == (fault,)
    assert faults_due((fault,), step=8, rank=1, already_fired=frozenset()) == ()
    assert faults_due((fault,), step=7, rank=0, already_fired=frozenset()) == ()
    assert faults_due((fault,), step=7, rank=1, already_fired=frozenset({fault.name})) == ()


def test_rehearsal_suffers_each_kind_once_well_apart_on_both_ranks() -> None:
    settings = deployment.load(REHEARSAL).trainer_settings("pod")
    plan = on_ranks(plan_faults(settings.faults, max_steps=settings.max_steps), 2)
    assert sorted(fault.kind.value for fault in plan) == ["exception", "hang", "sigkill"]
    assert {fault.rank for fault in plan} == {0, 1}
    assert all(b.step - a.step >= 20 for a, b in pairwise(plan))
    assert plan[-1].step < settings.max_steps - 10
