"""What the ranks of an attempt say to each other, and that nobody waits for the dead."""

import dataclasses
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.trainer.ranks import TIMEOUTS, Crew, sharded_state
from trainer.distributed import Job, Votes, process_group

pytestmark = pytest.mark.distributed


def vote(job: Job) -> Votes:
    return job.agree(Votes(loss=0.25 + job.rank, stop=float(job.rank == 1), writing=1.0))


def test_votes_are_summed_over_all_ranks(crew: Crew) -> None:
    expected = Votes(loss=1.5, stop=1.0, writing=2.0, failed=0.0)
    assert crew.call(vote) == [expected, expected]


def doubt(job: Job) -> tuple[bool, bool]:
    return job.everyone(job.rank == 0), job.everyone(True)


def test_one_that_doubts_is_enough(crew: Crew) -> None:
    assert crew.call(doubt) == [(False, True)] * 2


def ask_rank_zero(job: Job) -> list[str]:
    return job.from_rank_zero([f"rank {job.rank}"])


def test_all_hear_what_rank_zero_says(crew: Crew) -> None:
    assert crew.call(ask_rank_zero) == [["rank 0"]] * 2


def seconds_until_it_fails(job: Job) -> float:
    started = time.monotonic()
    with pytest.raises(RuntimeError):
        job.agree(Votes())
    return time.monotonic() - started


def wait_for_one_that_never_comes(job: Job, given_up: Path) -> float:
    job.expect_progress(dataclasses.replace(TIMEOUTS, collective_seconds=1.0))
    if job.rank == 1:
        deadline = time.monotonic() + 20
        while not given_up.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return 0.0
    waited = seconds_until_it_fails(job)
    given_up.touch()
    return waited


def test_a_collective_fails_in_time_when_a_rank_never_comes(crew: Crew, tmp_path: Path) -> None:
    waited, _ = crew.call(wait_for_one_that_never_comes, tmp_path / "given-up")
    assert 0.9 < waited < 5.0


def wait_for_one_that_left(job: Job) -> float:
    state = sharded_state(job, seed=1)
    state.model(torch.arange(4)).sum().backward()  # torch's caches now hold the mesh
    state.optimizer.step()
    return seconds_until_it_fails(job) if job.rank == 0 else 0.0


def test_a_collective_fails_at_once_when_a_rank_has_left(crew: Crew) -> None:
    waited, _ = crew.call(wait_for_one_that_left)
    assert waited < 5.0  # of the 40 that a collective may take before the first step


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")


def fail_in_a_group(store: Path) -> None:
    with process_group("cpu", TIMEOUTS, dist.FileStore(str(store), 1)) as job:
        assert (job.rank, job.world_size, job.mesh.size()) == (0, 1, 1)
        raise ArithmeticError("in step 3")


@pytest.mark.usefixtures("alone")
def test_an_attempt_that_fails_leaves_no_group_and_the_next_one_makes_its_own(
    tmp_path: Path,
) -> None:
    for attempt in ("first", "second"):
        with pytest.raises(ArithmeticError, match="in step 3"):
            fail_in_a_group(tmp_path / attempt)
        assert not dist.is_initialized()
