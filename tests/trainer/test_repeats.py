"""Which failures count as a bug's, and when the second one ends the run."""

from pathlib import Path

import pytest
import torch

from trainer.errors import NodeUnhealthy, Repeats
from trainer.faults.suffer import InjectedFault
from trainer.recovery.repeats import note_failure


def fail(folder: Path, error: BaseException, *, attempt: int, step: int = 7) -> None:
    note_failure(folder, step=step, error=error, attempt=attempt)


def test_the_same_failure_of_a_second_attempt_is_a_bug(tmp_path: Path) -> None:
    fail(tmp_path, ValueError("bad shape at 0x7f01, row 3"), attempt=1)
    with pytest.raises(Repeats, match="step 7 failed twice with ValueError: bad shape") as caught:
        fail(tmp_path, ValueError("bad shape at 0x7f99, row 5"), attempt=2)
    assert isinstance(caught.value.__cause__, ValueError)


def test_ranks_that_fail_together_have_failed_once(tmp_path: Path) -> None:
    fail(tmp_path, ValueError("bad"), attempt=1)
    fail(tmp_path, ValueError("bad"), attempt=1)


def test_another_step_or_another_failure_is_tried_again(tmp_path: Path) -> None:
    fail(tmp_path, ValueError("bad"), attempt=1)
    fail(tmp_path, ValueError("bad"), attempt=2, step=8)
    fail(tmp_path, KeyError("bad"), attempt=3)
    fail(tmp_path, ValueError("worse"), attempt=4)


@pytest.mark.parametrize(
    "error",
    [
        InjectedFault("1"),
        NodeUnhealthy("gpu 3"),
        OSError("stale file handle"),
        torch.distributed.DistNetworkError("gone"),
        torch.AcceleratorError("device-side assert triggered", 710),
        RuntimeError("gloo/transport/tcp/pair.cc: Connection closed by peer [10.0.0.1]:4711"),
        type("RankMonitorClientError", (Exception,), {})("Unexpected reply: None. Expected OkMsg"),
        SystemExit(1),
    ],
)
def test_what_may_come_and_go_is_never_counted(tmp_path: Path, error: BaseException) -> None:
    for attempt in (1, 2, 3):
        fail(tmp_path, error, attempt=attempt)
    assert list(tmp_path.iterdir()) == []
