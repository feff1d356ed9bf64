"""A rank that is in another collective than the others: all fail, and none learns a result."""

import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tests.trainer.ranks import Crew
from trainer.distributed import Job
from trainer.faults.device import Desynchronised, join_another_collective

LIMIT_SECONDS = 1.0
"""Of a collective; the other ranks wait so long for one that never comes."""


def meet_in_different_collectives(job: Job, words: int) -> tuple[str, float]:
    """What the rank learned: a result, or the error; and after how many seconds."""
    job._limit(agreement=LIMIT_SECONDS, collective=LIMIT_SECONDS)
    job.everyone(True)
    began = time.monotonic()
    try:
        if job.rank == 1:
            join_another_collective(job)
        else:
            dist.all_reduce(torch.ones(words))
        learned = "a result"
    except RuntimeError as error:
        learned = type(error).__name__
    return learned, time.monotonic() - began


@pytest.mark.distributed
@pytest.mark.parametrize("words", [1, 1 << 20], ids=["a norm", "as many as it waits for"])
def test_a_skipped_collective_gives_nobody_a_result(words: int, crew: Crew) -> None:
    try:
        for learned, seconds in crew.call(meet_in_different_collectives, words):
            assert learned == "RuntimeError"
            assert seconds < 30
    finally:
        crew.kill()  # what timed out is in no state to be used again


def test_a_collective_that_returns_all_the_same_is_an_error(mesh: DeviceMesh) -> None:
    with pytest.raises(Desynchronised):
        join_another_collective(Job(0, 1, torch.device("cpu"), mesh))
