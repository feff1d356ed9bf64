"""Plans that cannot happen are refused in words, before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.faults.settings import FaultKind
from trainer.settings import TrainerSettings

STOP = {"kind": "stop", "step": 5, "rank": 0}
CUDA_ERROR = {"kind": "cuda_error", "step": 5, "rank": 0}


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        (
            {"planned": [STOP], "count": 2},
            "faults.count is 2 beside faults.planned, which is the whole plan; set faults.count",
        ),
        (
            {"planned": [STOP, {**STOP, "kind": "exit"}]},
            "faults.planned has two faults at step 5 on rank 0, and only one can happen; move",
        ),
        (
            {"planned": [{**STOP, "step": 100}]},
            "faults.planned has a fault at step 100, and the last one that can suffer any is 99",
        ),
        ({"planned": [{**STOP, "step": 0}]}, "greater than 0"),
        ({"planned": [{**STOP, "kind": "meteor"}]}, "'corrupt_checkpoint'"),
        ({"planned": [CUDA_ERROR]}, "cuda_error happen on a GPU only, and device is cpu"),
        (
            {"count": 1, "kinds": ["cuda_error"], "weights": [1.0]},
            "cuda_error happen on a GPU only, and device is cpu",
        ),
        ({"exit_code": 256}, "less than or equal to 255"),
    ],
)
def test_a_plan_that_cannot_happen_is_refused(
    faults: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=complaint):
        trainer_settings(tmp_path, faults=faults)


def test_the_last_step_but_one_may_suffer(tmp_path: Path) -> None:
    settings = trainer_settings(tmp_path, faults={"planned": [{**STOP, "step": 99}]})
    assert settings.faults.planned[0].step == 99


def test_one_step_may_suffer_on_two_ranks(tmp_path: Path) -> None:
    settings = trainer_settings(tmp_path, faults={"planned": [STOP, {**STOP, "rank": 1}]})
    assert settings.faults.kinds_to_come() == {FaultKind.STOP}


def test_a_gpu_may_suffer_a_cuda_error(tmp_path: Path) -> None:
    values = trainer_settings(tmp_path).model_dump()
    values |= {"device": "cuda", "faults": {"planned": [CUDA_ERROR]}}
    planned = TrainerSettings.model_validate(values).faults.planned
    assert planned[0].kind is FaultKind.CUDA_ERROR


def test_a_kind_that_is_drawn_from_but_never_drawn_is_no_harm(tmp_path: Path) -> None:
    trainer_settings(tmp_path, faults={"count": 0, "kinds": ["cuda_error"], "weights": [1.0]})
