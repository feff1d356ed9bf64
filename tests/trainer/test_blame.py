"""Whom an attempt ended for: one case for each cause, and what may not be blamed."""

import dataclasses
from typing import Any

import pytest

from trainer.diagnosis.blame import Cause, Diagnosis, End, Trace, diagnose
from trainer.diagnosis.stacks import Frame

TORCH = "/venv/site-packages/torch/"
SLEEPS = (Frame("/app/trainer/data.py", "77", "batch"), Frame("/app/trainer/loop.py", "9", "_step"))
IN_ALL_REDUCE = (
    Frame(TORCH + "distributed/distributed_c10d.py", "3000", "all_reduce"),
    Frame(TORCH + "distributed/c10d_logger.py", "80", "wrapper"),
    Frame("/app/trainer/distributed.py", "70", "agree"),
)
IN_BACKWARD = (
    Frame(TORCH + "autograd/graph.py", "841", "_engine_run_backward"),
    Frame("/app/trainer/optimization.py", "60", "backward"),
)
CONNECTION_CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.7]:6466"


def rank(number: int, **fields: Any) -> Trace:
    return Trace(number, **{"node": f"node-{number}", "last_step": 56, **fields})


def failed(number: int, reason: str, **fields: Any) -> Trace:
    return rank(number, end=End.FAILED, reason=reason, **fields)


def blamed(*traces: Trace) -> tuple[Cause, int | None]:
    found = diagnose(3, traces)
    return found.cause, found.rank


def line(*traces: Trace) -> str:
    return diagnose(3, traces).line


def test_a_rank_outside_a_collective_hung_and_the_others_wait_for_it() -> None:
    traces = [rank(0, frames=IN_ALL_REDUCE), rank(1, frames=SLEEPS), rank(2, frames=IN_BACKWARD)]
    assert diagnose(3, traces) == Diagnosis(
        attempt=3,
        cause=Cause.HUNG,
        line="rank 1 on node node-1 hung in step 57: its stack ends in batch at "
        "trainer/data.py:77; the others wait for it in all_reduce",
        rank=1,
        node="node-1",
    )


def test_of_several_ranks_outside_collectives_the_one_that_is_a_step_behind_hung() -> None:
    behind = rank(2, frames=SLEEPS, last_step=55)
    assert blamed(rank(0, frames=IN_ALL_REDUCE), rank(1, frames=SLEEPS), behind) == (Cause.HUNG, 2)


def test_of_several_ranks_that_hung_alike_none_is_singled_out() -> None:
    hung = [rank(number, frames=SLEEPS, node="node-b") for number in (1, 2)]
    found = diagnose(3, [rank(0, frames=IN_ALL_REDUCE), *hung])
    assert (found.cause, found.rank, found.node) == (Cause.HUNG, None, "node-b")
    assert found.line == (
        "ranks 1, 2, all on node node-b, hung in step 57: their stacks end in batch at "
        "trainer/data.py:77; the others wait for them in all_reduce"
    )


def test_ranks_that_all_hung_in_one_place_do_not_wait_for_each_other() -> None:
    assert blamed(rank(0, frames=SLEEPS), rank(1, frames=SLEEPS)) == (Cause.HUNG, None)
    said = line(rank(0, frames=SLEEPS), rank(1, frames=SLEEPS))
    assert said == "every rank hung in step 57: their stacks end in batch at trainer/data.py:77"


def test_of_several_ranks_outside_collectives_the_recorder_names_the_one_behind() -> None:
    traces = [
        rank(0, frames=IN_ALL_REDUCE),
        rank(1, frames=SLEEPS),
        rank(2, frames=SLEEPS, is_behind=True),
    ]
    assert blamed(*traces) == (Cause.HUNG, 2)


def test_a_rank_that_raised_is_named_with_its_reason() -> None:
    traces = (failed(0, CONNECTION_CLOSED), failed(2, "ValueError: bad token"))
    assert line(*traces) == "rank 2 on node node-2 raised ValueError: bad token in step 57"


@pytest.mark.parametrize(
    "echo",
    [
        CONNECTION_CLOSED,
        "RankShouldRestart: Interruption.SOFT_TIMEOUT on ranks={0, 1}",
        "DistBackendError: NCCL communicator was aborted on rank 0.",
        "RuntimeError: Timed out waiting 6000ms for recv operation to complete",
    ],
)
def test_a_failure_that_echoes_another_ranks_end_is_not_to_blame(echo: str) -> None:
    assert blamed(failed(0, echo, failed_at=1.0), failed(1, "OSError: x", failed_at=2.0)) == (
        Cause.FAILED,
        1,
    )
    assert blamed(failed(0, echo), rank(1)) == (Cause.VANISHED, 1)
    hung = [failed(0, echo, frames=IN_ALL_REDUCE), failed(1, echo, frames=SLEEPS)]
    assert blamed(*hung) == (Cause.HUNG, 1)


def test_of_several_failures_the_first_is_named() -> None:
    late, early = failed(0, "E: b", failed_at=2.0), failed(1, "E: a", failed_at=1.0)
    assert blamed(late, early) == (Cause.FAILED, 1)


def test_a_failure_of_every_rank_alike_is_said_so() -> None:
    traces = [failed(number, "FloatingPointError: loss is nan") for number in range(3)]
    assert line(*traces).endswith("loss is nan in step 57; so did every other rank")
    assert line(*traces, rank(3, told_to_stop=True)).endswith("; so did ranks 1, 2")


@pytest.mark.parametrize(("reason", "code"), [("SystemExit: 0", 0), ("SystemExit: ", 0)])
def test_a_rank_that_left_by_itself_is_named_with_its_exit_code(reason: str, code: int) -> None:
    traces = (failed(0, CONNECTION_CLOSED), failed(1, reason))
    assert blamed(*traces) == (Cause.EXITED, 1)
    assert line(*traces) == f"rank 1 on node node-1 left with exit code {code} in step 57"


def test_a_rank_without_a_last_word_was_killed_frozen_or_lost() -> None:
    traces = (rank(0), rank(1, told_to_stop=True))
    assert blamed(*traces) == (Cause.VANISHED, 0)
    assert line(*traces) == (
        "rank 0 on node node-0 was killed, frozen or lost: no word, and no stacks, after step 56"
    )


def test_a_frozen_rank_leaves_no_stacks_where_the_others_do() -> None:
    assert blamed(rank(0), rank(1, frames=IN_ALL_REDUCE)) == (Cause.VANISHED, 0)


def test_a_node_that_vanished_is_named_though_no_single_rank_is() -> None:
    lost = [rank(number, node="node-b") for number in (2, 3)]
    found = diagnose(3, [rank(0, told_to_stop=True), rank(1, told_to_stop=True), *lost])
    assert (found.cause, found.rank, found.node) == (Cause.VANISHED, None, "node-b")
    assert found.line.startswith("ranks 2, 3, all on node node-b, were killed")


def test_every_rank_silent_blames_none() -> None:
    assert blamed(rank(0), rank(1)) == (Cause.VANISHED, None)
    assert line(rank(0), rank(1)).startswith("every rank was killed")


def test_ranks_that_wait_in_different_collectives_are_out_of_step() -> None:
    majority = [rank(number, frames=IN_ALL_REDUCE) for number in (0, 1)]
    odd = rank(2, frames=IN_BACKWARD)
    assert blamed(*majority, odd) == (Cause.OUT_OF_STEP, 2)
    assert "rank 2 on node node-2 is the odd one out" in line(*majority, odd)


def test_of_two_ranks_that_wait_for_each_other_the_recorder_names_the_one_behind() -> None:
    one, other = rank(0, frames=IN_ALL_REDUCE), rank(1, frames=IN_BACKWARD)
    assert blamed(one, other) == (Cause.OUT_OF_STEP, None)
    behind = dataclasses.replace(one, is_behind=True)
    assert blamed(behind, other) == (Cause.OUT_OF_STEP, 0)
    assert "rank 0 on node node-0 began fewer collectives" in line(behind, other)


def test_an_attempt_that_was_told_to_stop_blames_none() -> None:
    assert blamed(rank(0, told_to_stop=True), rank(1, told_to_stop=True)) == (Cause.STOPPED, None)


def test_an_attempt_that_finished_blames_none() -> None:
    slow_once = rank(1, end=End.FINISHED, frames=IN_ALL_REDUCE)
    assert blamed(rank(0, end=End.FINISHED), slow_once) == (Cause.FINISHED, None)


def test_what_cannot_be_told_is_said_so() -> None:
    assert blamed() == (Cause.UNKNOWN, None)
    assert blamed(failed(0, CONNECTION_CLOSED), failed(1, CONNECTION_CLOSED)) == (
        Cause.UNKNOWN,
        None,
    )
