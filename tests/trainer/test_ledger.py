"""The ledger on a history reckoned by hand, and on awkward ones."""

import math

import pytest

from tests.trainer.histories import History, launch, three_faults
from trainer.goodput.ledger import Bin, StepTime, account_for


def test_the_bins_of_three_faults_are_those_reckoned_by_hand() -> None:
    assert account_for(three_faults().events).seconds_by_bin == pytest.approx(
        {
            Bin.PRODUCTIVE: 24.0,  # 24 steps of 1 s
            Bin.LOST: 7.25,  # steps 6-10 and 11, cut short after 0.5, 0.25 and 0.5 s
            Bin.STALL: 2.0,  # saves at 5, 10, 15 and 20
            Bin.DETECT: 6.35,  # 0.1 exception, 0.25 SIGKILL, 6 hang
            Bin.ABORT: 2.0,  # 1 in process, 0 in job, 1 until the second pod stopped
            Bin.RENDEZVOUS: 9.4,  # 2 + 1, 0.4, 2 + 1, 2 + 1
            Bin.RESTORE: 2.5,
            Bin.STARTUP: 10.0,  # three starts of processes, and 1 s to build from nothing
            Bin.IDLE: 3.0,  # 2 without pods, 1 to end
            Bin.UNACCOUNTED: 0.0,
        }
    )


def test_the_sums_of_three_faults_are_those_reckoned_by_hand() -> None:
    account = account_for(three_faults().events)
    assert account.wall_seconds == pytest.approx(66.5)
    assert (account.steps_kept, account.steps_redone, account.final_step) == (24, 6, 24)
    assert (account.num_attempts, account.max_attempt, account.finished) == (4, 4, True)
    assert (account.num_saves, account.stall_seconds_per_save) == (4, 0.5)
    assert account.save_seconds == 2.0
    assert account.goodput_fraction == pytest.approx(24 / 66.5)
    assert (account.step_seconds, account.step_time) == (1.0, StepTime.OWN_MEDIAN)


def test_each_fault_gets_the_time_until_the_first_step_of_a_later_attempt() -> None:
    exception, sigkill, hang = account_for(three_faults().events).recoveries
    assert [r.kind for r in (exception, sigkill, hang)] == ["exception", "sigkill", "hang"]
    assert exception.time_to_recover_seconds == pytest.approx(3.0)
    assert sigkill.time_to_recover_seconds == pytest.approx(8.25)
    assert hang.time_to_recover_seconds == pytest.approx(17.0)
    assert [r.steps_lost for r in (exception, sigkill, hang)] == [5, 1, 0]
    assert [r.restored_step for r in (exception, sigkill, hang)] == [5, 10, 20]
    assert (hang.rank, hang.step, hang.attempt, hang.source) == (1, 20, 3, "durable")


def test_a_fault_that_training_outlived_took_no_time_to_recover() -> None:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    history.train(to=3)
    history.fault("slow", rank=1)
    history.train(to=6)
    history.fault("exception", rank=1)
    history.wait(3.0, Bin.DETECT)
    history.start_attempt()
    history.join()
    history.restore(0)
    history.train(to=9)
    slow, exception = account_for(history.events).recoveries
    assert (slow.time_to_recover_seconds, slow.restored_step, slow.steps_lost) == (0.0, None, None)
    assert exception.time_to_recover_seconds == pytest.approx(4.0)


def test_the_recovery_from_a_hang_is_split_by_what_it_waited_for() -> None:
    hang = account_for(three_faults().events).recoveries[2]
    assert hang.seconds_by_bin is not None
    assert {bin_: s for bin_, s in hang.seconds_by_bin.items() if s} == pytest.approx(
        {
            Bin.DETECT: 6.0,
            Bin.ABORT: 1.0,
            Bin.IDLE: 2.0,
            Bin.RENDEZVOUS: 3.0,
            Bin.STARTUP: 3.0,
            Bin.RESTORE: 1.0,
            Bin.PRODUCTIVE: 1.0,
        }
    )
    assert hang.first_step_seconds == pytest.approx(1.0)


def test_goodput_is_reckoned_with_the_reference_step_time_when_there_is_one() -> None:
    account = account_for(three_faults().events, reference_step_seconds=0.5)
    assert account.goodput_fraction == pytest.approx(12 / 66.5)
    assert (account.step_seconds, account.step_time) == (0.5, StepTime.REFERENCE)


def test_without_a_report_the_time_until_new_workers_is_all_detection() -> None:
    history = _trained_to(4)
    history.fault("sigkill", rank=0)
    history.wait(5.0, Bin.DETECT)
    history.start_workers()
    _start_again(history, restored=4)
    account = account_for(history.events)
    assert account.seconds_by_bin == pytest.approx(history.seconds_by_bin())
    assert account.seconds_by_bin[Bin.DETECT] == 5.0


def test_a_failure_that_was_not_injected_counts_from_the_last_progress() -> None:
    history = _trained_to(4)
    history.wait(1.5, Bin.DETECT)
    history.report(1)
    history.wait(0.5, Bin.ABORT)
    _start_again(history, restored=2)
    account = account_for(history.events)
    assert account.seconds_by_bin == pytest.approx(history.seconds_by_bin())
    assert (account.steps_kept, account.steps_redone, account.recoveries) == (3, 2, ())


def test_a_save_on_the_way_out_is_stall_and_not_detection() -> None:
    history = _trained_to(4)
    history.wait(3.0, Bin.STALL)
    history.commit(4)
    history.wait(1.0, Bin.DETECT)
    history.stop_pod(0)
    history.wait(60.0, Bin.IDLE)
    history.start_pod(0)
    history.start_workers()
    _start_again(history, restored=4)
    assert account_for(history.events).seconds_by_bin == pytest.approx(history.seconds_by_bin())


def test_time_between_steps_that_nobody_measured_is_unaccounted() -> None:
    history = _trained_to(4)
    history.step()
    for event in history.events:
        if event["name"] == "step_completed" and event["step"] == 3:
            event["seconds"] = 0.75
    assert account_for(history.events).seconds_by_bin[Bin.UNACCOUNTED] == pytest.approx(0.25)


def test_a_step_that_one_rank_did_not_complete_was_not_executed() -> None:
    history = _trained_to(4)
    history.events.pop()  # rank 1 died before it could write step 4
    account = account_for(history.events)
    assert (account.steps_kept, account.final_step, account.finished) == (3, 3, False)


def test_steps_rolled_back_do_not_count_as_kept_although_never_done_again() -> None:
    history = _trained_to(4)
    history.fault("exception", rank=0)
    history.report(0)
    history.start_attempt()
    history.join()
    history.restore(1)
    account = account_for(history.events)
    assert (account.steps_kept, account.steps_redone) == (1, 3)
    (recovery,) = account.recoveries
    assert (recovery.time_to_recover_seconds, recovery.seconds_by_bin) == (None, None)


def test_the_sample_ids_of_a_run_with_faults_equal_those_of_one_without() -> None:
    assert account_for(three_faults().events).sample_ids_digest == _digest_of_steps(24)


@pytest.mark.parametrize("wrong_restore", [3, 5])
def test_a_step_done_twice_or_skipped_changes_the_sample_ids_digest(wrong_restore: int) -> None:
    history = _trained_to(4)
    history.start_attempt()
    history.join()
    history.restore(4)
    history._step = wrong_restore
    history.train(to=8)
    assert account_for(history.events).sample_ids_digest != _digest_of_steps(8)


def test_a_loss_that_is_not_finite_is_named_by_its_step() -> None:
    history = _trained_to(4)
    history.step(loss=math.nan)
    assert account_for(history.events).nonfinite_loss_steps == (5,)


def test_the_digest_of_every_rank_is_that_of_its_last_finish() -> None:
    history = _trained_to(4)
    history.finish("first")
    history.wait(9.0, Bin.IDLE)
    history.start_workers()
    _start_again(history, restored=4)
    history.finish("second")
    assert account_for(history.events).digests == {0: "second", 1: "second"}


def test_a_run_that_never_trained_is_accounted_for_too() -> None:
    history = History(num_ranks=1)
    for _ in range(2):
        history.start_pod()
        history.wait(3.0, Bin.STARTUP)
        history.stop_pod()
        history.wait(10.0, Bin.IDLE)
    history.start_pod()
    account = account_for(history.events)
    assert account.seconds_by_bin == pytest.approx(history.seconds_by_bin())
    assert (account.finished, account.goodput_fraction, account.step_seconds) == (False, 0.0, None)


def test_a_run_without_events_is_refused() -> None:
    with pytest.raises(ValueError, match="without events"):
        account_for([])


def _trained_to(step: int) -> History:
    """Two ranks of one pod after ``step`` steps of a first attempt."""
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    history.train(to=step)
    return history


def _start_again(history: History, *, restored: int) -> None:
    history.start_attempt()
    history.join()
    history.restore(restored)
    history.step()


def _digest_of_steps(num_steps: int) -> str:
    return account_for(_trained_to(num_steps).events).sample_ids_digest
