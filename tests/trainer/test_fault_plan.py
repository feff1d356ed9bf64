"""The plan of faults: the published schedule, and what holds for every seed."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deployment
from trainer.faults.plan import Fault, faults_due, may_be_due, on_ranks, plan_faults
from trainer.faults.settings import FaultKind, FaultSettings, PlannedFault

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


def listed(*faults: tuple[FaultKind, int, int]) -> tuple[Fault, ...]:
    planned = tuple(PlannedFault(kind=kind, step=step, rank=rank) for kind, step, rank in faults)
    return plan_faults(FaultSettings(planned=planned), max_steps=2000)


def test_a_listed_plan_is_in_order_of_step_and_named_as_if_drawn() -> None:
    plan = listed((FaultKind.STOP, 30, 0), (FaultKind.EXCEPTION, 7, 1), (FaultKind.SLOW, 30, 1))
    assert [fault.name for fault in plan] == [
        "1-exception-step-7-rank-1",
        "2-stop-step-30-rank-0",
        "3-slow-step-30-rank-1",
    ]
    assert plan[0] == Fault(plan[0].name, step=7, rank=1, kind=FaultKind.EXCEPTION)


def test_a_fault_is_due_once_on_its_step_and_rank() -> None:
    (fault,) = plan = listed((FaultKind.HANG, 7, 1))
    assert faults_due(plan, step=7, rank=1, fired={}) == (fault,)
    assert faults_due(plan, step=8, rank=1, fired={}) == ()
    assert faults_due(plan, step=7, rank=0, fired={}) == ()
    assert faults_due(plan, step=7, rank=1, fired={fault.name: 5.0}) == ()


SPACED = listed((FaultKind.HANG, 7, 1), (FaultKind.STOP, 9, 0), (FaultKind.EXIT, 50, 1))
FIRST, SECOND, THIRD = (fault.name for fault in SPACED)


@pytest.mark.parametrize(
    ("step", "rank", "fired", "now", "expected"),
    [
        pytest.param(7, 1, {}, 1159.9, [], id="the first waits for 160 s since the run began"),
        pytest.param(7, 1, {}, 1160.0, [FIRST], id="the first, as soon as they are over"),
        pytest.param(99, 1, {}, 1160.0, [FIRST], id="the first, long past its step"),
        pytest.param(6, 1, {}, 9999.0, [], id="never before its step"),
        pytest.param(9, 0, {}, 9999.0, [], id="the second never before the first"),
        pytest.param(99, 0, {FIRST: 1170.0}, 1329.0, [], id="the second waits for the first"),
        pytest.param(99, 0, {FIRST: 1170.0}, 1330.0, [SECOND], id="the second, 160 s after it"),
        pytest.param(99, 1, {FIRST: 1170.0}, 1330.0, [], id="the other rank's is not this one's"),
        pytest.param(
            50, 1, {FIRST: 1170.0, SECOND: 1500.0}, 1660.0, [THIRD], id="the last that fired counts"
        ),
        pytest.param(99, 1, {FIRST: 1.0, SECOND: 2.0, THIRD: 3.0}, 9999.0, [], id="none is left"),
    ],
)
def test_spaced_faults_wait_for_each_other_and_never_pack(
    *, step: int, rank: int, fired: dict[str, float], now: float, expected: list[str]
) -> None:
    due = faults_due(
        SPACED, step=step, rank=rank, fired=fired, now=now, began=1000.0, seconds_apart=160.0
    )
    assert [fault.name for fault in due] == expected


def test_only_spaced_faults_are_looked_for_after_their_step() -> None:
    plan = listed((FaultKind.HANG, 7, 1))
    assert may_be_due(plan, step=7, rank=1, waits=False)
    assert not may_be_due(plan, step=8, rank=1, waits=False)
    assert may_be_due(plan, step=8, rank=1, waits=True)
    assert not may_be_due(plan, step=6, rank=1, waits=True)
    assert not may_be_due(plan, step=8, rank=0, waits=True)


def test_rehearsal_suffers_each_kind_once_well_apart_on_both_ranks() -> None:
    settings = deployment.load(REHEARSAL).trainer_settings("pod")
    plan = on_ranks(plan_faults(settings.faults, max_steps=settings.max_steps), 2)
    assert sorted(fault.kind.value for fault in plan) == ["exception", "hang", "sigkill"]
    assert {fault.rank for fault in plan} == {0, 1}
    assert all(b.step - a.step >= 20 for a, b in pairwise(plan))
    assert plan[-1].step < settings.max_steps - 10
