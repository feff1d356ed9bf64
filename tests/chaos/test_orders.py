"""Which rendered Job a plan is run with."""

from pathlib import Path

from tests.chaos.orders import Orders
from tests.chaos.plans import Plan
from trainer.settings import CheckpointMode, RecoveryLayer


def test_a_job_for_another_nvrx_is_not_the_job_for_this_one(tmp_path: Path) -> None:
    # Of the launcher, whose options differ.
    plan = Plan("one", RecoveryLayer.IN_JOB, CheckpointMode.ASYNC, 1, 2, 0, ())
    other = Orders(tmp_path, nvrx="0.7.0").of(plan)
    assert Orders(tmp_path).of(plan) != other
