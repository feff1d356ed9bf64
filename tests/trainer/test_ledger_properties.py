"""What the ledger promises of every legal history, on histories drawn at random."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.histories import History, launch
from trainer.goodput.ledger import Bin, account_for


@st.composite
def histories(draw: st.DrawFn, *, skewed: bool = False) -> History:
    """A legal run: some steps and a fault, over and over, then the rest; recovered by any layer."""
    noise = random.Random(draw(st.integers(0, 2**32)))
    num_pods = draw(st.integers(1, 2))
    num_ranks = num_pods * draw(st.integers(1, 2))
    skew = (lambda: noise.uniform(0, 0.02)) if skewed else (lambda: 0.0)
    history = History(num_ranks=num_ranks, num_pods=num_pods, skew=skew)
    launch(history, num_pods=num_pods)
    restored, step = 0, 0
    for kind in draw(st.lists(st.sampled_from(["exception", "sigkill", "hang"]), max_size=4)):
        _restore(history, restored, noise)
        step = _train_some(history, restored, draw(st.integers(0, 8)), noise)
        restored = draw(st.integers(restored, step))
        history.wait(noise.uniform(0, 1), Bin.LOST)
        history.fault(kind, rank=draw(st.integers(0, num_ranks - 1)))
        history.wait(noise.uniform(0.05, 9), Bin.DETECT)
        reporters = draw(st.lists(st.integers(0, num_ranks - 1), max_size=num_ranks, unique=True))
        layer = draw(st.sampled_from([_again_in_process, _again_in_job, _again_in_pods]))
        layer(history, reporters, num_pods, noise)
        history.join()
    _restore(history, restored, noise)
    _train_some(history, restored, 6, noise)
    history.wait(noise.uniform(0, 3), Bin.IDLE)
    history.finish()
    return history


def _restore(history: History, step: int, noise: random.Random) -> None:
    history.wait(noise.uniform(0.1, 2), Bin.RESTORE if step else Bin.STARTUP)
    history.restore(step)


def _train_some(history: History, restored: int, num_steps: int, noise: random.Random) -> int:
    for _ in range(num_steps):
        stall = noise.choice([0.0, 0.0, noise.uniform(0, 2)])
        history.step(noise.uniform(0.3, 1.0), stall_seconds=stall)
    return restored + num_steps


def _again_in_process(
    history: History, reporters: list[int], _num_pods: int, noise: random.Random
) -> None:
    for rank in reporters or [0]:
        history.report(rank)
        history.wait(noise.uniform(0, 1), Bin.ABORT)
    history.start_attempt()
    history.wait(noise.uniform(0, 1), Bin.RENDEZVOUS)


def _again_in_job(
    history: History, reporters: list[int], _num_pods: int, noise: random.Random
) -> None:
    for rank in reporters[:1]:
        history.report(rank)
    for rank in reporters[1:]:
        history.wait(noise.uniform(0, 1), Bin.ABORT)
        history.report(rank)
    history.wait(noise.uniform(0, 5), Bin.RENDEZVOUS if reporters else Bin.DETECT)
    history.start_workers()
    history.wait(noise.uniform(1, 5), Bin.STARTUP)
    history.start_attempt()
    history.wait(noise.uniform(0, 1), Bin.RENDEZVOUS)


def _again_in_pods(
    history: History, reporters: list[int], num_pods: int, noise: random.Random
) -> None:
    for rank in reporters:
        history.report(rank)
        history.wait(noise.uniform(0, 1), Bin.ABORT)
    history.stop_pod(0)
    if num_pods == 2:  # pod 0 is back before the hung worker of pod 1 is gone
        history.wait(noise.uniform(0.1, 1), Bin.ABORT)
        history.start_pod(0)
        history.wait(noise.uniform(0.1, 1), Bin.ABORT)
        history.stop_pod(1)
    history.wait(noise.uniform(1, 9), Bin.IDLE)
    history.start_pod(num_pods - 1)
    history.wait(noise.uniform(0.1, 2), Bin.RENDEZVOUS)
    history.start_workers()
    history.wait(noise.uniform(1, 5), Bin.STARTUP)
    history.start_attempt()
    history.wait(noise.uniform(0, 1), Bin.RENDEZVOUS)


@settings(deadline=None)
@given(histories())
def test_every_second_is_in_the_bin_in_which_it_was_spent(history: History) -> None:
    account = account_for(history.events)
    assert account.seconds_by_bin == pytest.approx(history.seconds_by_bin(), abs=1e-6)


@settings(deadline=None)
@given(histories(skewed=True))
def test_the_bins_add_up_to_the_wall_time_and_none_is_negative(history: History) -> None:
    account = account_for(history.events)
    assert sum(account.seconds_by_bin.values()) == pytest.approx(account.wall_seconds)
    assert min(account.seconds_by_bin.values()) >= 0
    assert account.seconds_by_bin[Bin.UNACCOUNTED] < 0.005 * account.wall_seconds


@settings(deadline=None)
@given(histories(skewed=True))
def test_every_execution_is_kept_or_redone(history: History) -> None:
    account = account_for(history.events)
    assert (account.steps_kept, account.steps_redone) == (len(history.kept), history.num_redone)
    assert account.steps_kept == account.final_step
    assert account.sample_ids_digest == account_for(history.events[::-1]).sample_ids_digest


@settings(deadline=None)
@given(histories(skewed=True))
def test_goodput_never_exceeds_one_with_the_true_step_time(history: History) -> None:
    account = account_for(history.events, reference_step_seconds=0.3)
    assert 0 <= account.goodput_fraction <= 1


@settings(deadline=None)
@given(histories(skewed=True))
def test_the_bins_of_a_recovery_add_up_to_its_time(history: History) -> None:
    for recovery in account_for(history.events).recoveries:
        if recovery.time_to_recover_seconds is not None:
            assert recovery.seconds_by_bin is not None
            assert sum(recovery.seconds_by_bin.values()) == pytest.approx(
                recovery.time_to_recover_seconds
            )
