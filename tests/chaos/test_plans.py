"""What is drawn, and what the table claims."""

from itertools import pairwise

import pytest

from tests.chaos.cells import ALL_CELLS, Cell, Outcome, expected, is_claimed, is_further_out
from tests.chaos.plans import MAX_STEPS, draw_plan
from tests.chaos.runs import deployment_for, with_workers
from trainer.faults.settings import FaultKind
from trainer.settings import RecoveryLayer


def test_a_plan_depends_on_seed_and_index_alone() -> None:
    assert draw_plan(3, 17) == draw_plan(3, 17)
    assert len({draw_plan(3, 17), draw_plan(3, 18), draw_plan(4, 17)}) == 3


def test_sixty_five_plans_deal_every_cell() -> None:
    dealt = {cell for index in range(65) for cell in draw_plan(7, index).cells}
    assert dealt == set(ALL_CELLS)
    assert len(ALL_CELLS) == 65


def test_every_plan_is_one_to_three_faults_well_apart_on_ranks_that_it_has() -> None:
    for index in range(300):
        plan = draw_plan(1, index)
        steps = [fault.step for fault in plan.faults]
        assert 1 <= len(steps) <= 3
        assert all(later - earlier >= 6 for earlier, later in pairwise(steps))
        assert 4 <= min(steps) <= max(steps) < MAX_STEPS
        assert {fault.rank for fault in plan.faults} <= set(range(plan.world_size))
        assert 2 <= plan.world_size <= 4


def test_rank_zero_is_not_spared() -> None:
    assert any(fault.rank == 0 for index in range(20) for fault in draw_plan(1, index).faults)


def test_a_fault_that_ends_the_run_comes_alone() -> None:
    plans = [draw_plan(1, index) for index in range(130)]
    refused = [plan for plan in plans if plan.is_refused]
    assert refused
    assert {len(plan.faults) for plan in refused} == {1}


def test_every_plan_that_can_train_is_taken_by_the_settings() -> None:
    for plan in [draw_plan(1, index) for index in range(65)]:
        if FaultKind.CUDA_ERROR not in {fault.kind for fault in plan.faults}:
            if plan.layer is RecoveryLayer.NONE:
                continue  # the settings may refuse what would end the run
            deployment_for(plan)


@pytest.mark.parametrize(
    ("kind", "layer", "claim"),
    [
        ("exception", "in_process", "caught by in_process"),
        ("exception", "layered", "caught by in_process"),
        ("sigkill", "layered", "caught by in_job"),
        ("sigkill", "in_process", "caught by pod"),
        ("stop", "in_job", "caught by in_job"),
        ("node", "layered", "caught by in_job"),
        ("node", "in_process", "caught by pod"),
        ("slow", "none", "endured"),
        ("hang", "none", "refused by the settings"),
        ("cuda_error", "in_job", "refused by the settings"),
    ],
)
def test_the_table_says_who_catches_what(kind: str, layer: str, claim: str) -> None:
    assert str(expected(Cell(FaultKind(kind), RecoveryLayer(layer)))) == claim


def test_only_layer_none_and_cuda_errors_end_a_run() -> None:
    for cell in ALL_CELLS:
        ends = cell.layer is RecoveryLayer.NONE or cell.kind is FaultKind.CUDA_ERROR
        if expected(cell).outcome is Outcome.REFUSED:
            assert ends, cell
        assert is_claimed(cell) or ends


def test_a_pod_is_further_out_than_a_process() -> None:
    assert is_further_out(RecoveryLayer.POD, RecoveryLayer.IN_PROCESS)
    assert not is_further_out(RecoveryLayer.IN_PROCESS, RecoveryLayer.IN_JOB)


def test_the_launcher_is_told_how_many_workers_to_start() -> None:
    command = ["torchrun", "--nnodes=2", "--nproc-per-node=1", "-m", "x"]
    assert with_workers(command, 3) == ["torchrun", "--nnodes=2", "--nproc-per-node=3", "-m", "x"]
    with pytest.raises(ValueError, match="once"):
        with_workers(["torchrun"], 3)
