"""Planned faults in the real trainer: whatever they end, the run ends as if unharmed.

Attempt 2 goes on from step 4 and suffers a fault on rank 1; the last step is 7. No
layer recovers here, so what a fault ends is started once more by hand.
"""

import json
from pathlib import Path

import pytest

from tests.trainer.crashes.conftest import Prepare
from tests.trainer.crashes.runs import Trainers, copy, events, last_digests, log, restored_steps

HANG = ("timeouts.hang_seconds=4", "timeouts.shortest_hang_seconds=4")

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def planned(kind: str, step: int) -> str:
    return "faults.planned=" + json.dumps([{"kind": kind, "step": step, "rank": 1}])


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param("exception", 1, marks=pytest.mark.slow),
        pytest.param("oom", 1, marks=pytest.mark.slow),
        ("exit", 0),
        ("collective_skip", 1),
        ("corrupt_checkpoint", -9),
    ],
)
def test_a_fault_that_ends_the_attempt_leaves_no_step_wrong(
    kind: str, code: int, trainers: Trainers, prepared: Prepare, tmp_path: Path
) -> None:
    run = prepared("async")
    folder = copy(run.folder, tmp_path / "copy")
    changes = (*run.changes, planned(kind, 6), *HANG)
    outcome = trainers.run(folder, *changes)
    assert outcome.codes == {0: 1, 1: code}, log(folder)
    assert outcome.left == []
    (fault,) = events(folder, "fault_injected")
    assert (fault["kind"], fault["rank"], fault["at_step"]) == (kind, 1, 6)
    assert max(e["step"] for e in events(folder, "step_completed") if e["attempt"] == 2) == 5
    again = trainers.run(folder, *changes)
    assert again.codes == {0: 0, 1: 0}, log(folder)
    assert restored_steps(folder)[-1] == (2 if kind == "corrupt_checkpoint" else 4)
    assert last_digests(folder) == run.digests


@pytest.mark.parametrize(
    ("mode", "kind", "failed"),
    [
        ("async", "storage_full", {(0, 6), (1, 6)}),
        pytest.param("sync", "storage_full", {(0, 6), (1, 6)}, marks=pytest.mark.slow),
        pytest.param(
            "async_local_shards", "storage_full", {(0, 6), (1, 6)}, marks=pytest.mark.slow
        ),
        pytest.param("async", "slow", set(), marks=pytest.mark.slow),
    ],
)
def test_a_fault_that_training_outlives_costs_no_attempt(
    *,
    mode: str,
    kind: str,
    failed: set[tuple[int, int]],
    trainers: Trainers,
    prepared: Prepare,
    tmp_path: Path,
) -> None:
    run = prepared(mode)
    folder = copy(run.folder, tmp_path / "copy")
    outcome = trainers.run(folder, *run.changes, planned(kind, 5), "faults.slow_steps=2")
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    assert [event["kind"] for event in events(folder, "fault_injected")] == [kind]
    assert {(e["rank"], e["step"]) for e in events(folder, "checkpoint_failed")} == failed
    assert last_digests(folder) == run.digests
