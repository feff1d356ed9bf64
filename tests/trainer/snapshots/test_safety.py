"""What is offered after a failure is the state of its step, whatever was under way.

Real tensors, the real optimizer, gate and copier; only the collectives are played. Each check
is also made without what it watches over, and must then find the corruption.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.snapshots.training import NUM_STEPS, Collective, Trainer
from trainer.snapshots.copier import ThreadCopier
from trainer.snapshots.gate import Gate, GateClosed

SEEDS = range(8)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Tensor]]:
    """The whole state after each step of a training without failures, copies or threads."""
    trainer = Trainer(tmp_path_factory.mktemp("history"))
    states = {0: copies(trainer.tensors())}
    for step in range(1, NUM_STEPS + 1):
        trainer.step(step)
        states[step] = copies(trainer.tensors())
    return states


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def is_equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def wrong_snapshots(trainer: Trainer, history: dict[int, list[Tensor]]) -> list[int]:
    """Steps whose snapshot counts as done and is not the state of that step."""
    done = {step: buffer for step, (copy, buffer) in trainer.snapshots.items() if copy.is_done()}
    return [step for step, buffer in done.items() if not is_equal(buffer, history[step])]


def wrong_live_state(trainer: Trainer, history: dict[int, list[Tensor]]) -> bool:
    """Whether the rank offers its tensors as those of a step, and they are not."""
    step = trainer.state.step
    return step is not None and not is_equal(trainer.tensors(), history[step])


def jitter(seed: int) -> Callable[[], None]:
    """Pauses that follow from ``seed``, most of them none."""
    draw = random.Random(seed)
    return lambda: time.sleep(draw.choice([0, 0, 0.0005, 0.002]))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_snapshot_is_the_state_of_its_step_however_slow_the_copy(
    seed: int, tmp_path: Path, history: dict[int, list[Tensor]]
) -> None:
    copier = ThreadCopier(jitter(seed))
    trainer = Trainer(tmp_path, copier=copier)
    trainer.train()
    copier.fence()
    assert [copy.is_done() for copy, _ in trainer.snapshots.values()] == [True] * NUM_STEPS
    assert wrong_snapshots(trainer, history) == []
    assert copier.close()


def test_without_the_fence_a_snapshot_holds_values_of_two_steps(
    tmp_path: Path, history: dict[int, list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The copy of step 1 stands in its third tensor until step 2 has made its update.
    calls = iter(range(1000))
    updated = threading.Event()
    copier = ThreadCopier(lambda: _held(updated) if next(calls) == 2 else None)
    trainer = Trainer(tmp_path, copier=copier)
    trainer.step(1)
    with monkeypatch.context() as patch:
        patch.setattr(ThreadCopier, "fence", lambda _: None)
        trainer.at_update = updated.set
        with pytest.raises(AssertionError, match="no fence"):  # its start is the second guard
            trainer.step(2)
    copier.fence()
    assert wrong_snapshots(trainer, history) == [1]
    assert copier.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_an_abort_at_any_moment_leaves_the_state_of_a_step(
    seed: int, tmp_path: Path, history: dict[int, list[Tensor]]
) -> None:
    gate, copier, draw = Gate(), ThreadCopier(jitter(seed)), random.Random(seed)
    moment = draw.randrange(4 * NUM_STEPS)  # of the reductions of all steps
    reached, goes_on = threading.Event(), threading.Event()
    calls = iter(range(1000))

    def before_each() -> None:
        if next(calls) == moment:
            reached.set()
            if draw.random() < 0.5:
                goes_on.wait(10)

    collective = Collective(before_each)

    def abort() -> None:
        reached.wait(10)
        gate.close()
        collective.is_aborted.set()
        goes_on.set()

    aborting = threading.Thread(target=abort)
    aborting.start()
    trainer = Trainer(tmp_path, gate=gate, copier=copier, collective=collective)
    with suppress(GateClosed):  # where the last step was over first
        trainer.train()
    aborting.join()
    assert copier.close()
    assert not wrong_live_state(trainer, history)
    assert wrong_snapshots(trainer, history) == []


def aborted_in_step_three(folder: Path) -> Trainer:
    """Three of the four gradients of step 3 are reduced when the abort comes."""
    gate, calls = Gate(), iter(range(1000))
    collective = Collective(lambda: abort() if next(calls) == 2 * 4 + 3 else None)

    def abort() -> None:
        gate.close()
        collective.is_aborted.set()

    trainer = Trainer(folder, gate=gate, collective=collective)
    with suppress(GateClosed):
        trainer.train()
    return trainer


def test_a_step_whose_gradients_were_reduced_by_half_changes_nothing(
    tmp_path: Path, history: dict[int, list[Tensor]]
) -> None:
    trainer = aborted_in_step_three(tmp_path)
    assert trainer.state.step == 2
    assert not wrong_live_state(trainer, history)


def test_without_the_gate_such_a_step_is_offered_as_if_it_were_whole(
    tmp_path: Path, history: dict[int, list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "refuse_if_closed", lambda _: None)
    trainer = aborted_in_step_three(tmp_path)
    assert trainer.state.step == NUM_STEPS
    assert wrong_live_state(trainer, history)


def break_off(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 1, and then a step 2 that fails when it has changed some of the parameters."""
    trainer.step(1)

    def half(*_: Any, **__: Any) -> None:
        with torch.no_grad():
            trainer.tensors()[0].add_(1.0)
        raise OSError("in the midst of an update")

    monkeypatch.setattr(trainer.state.optimizer, "step", half)
    with pytest.raises(OSError, match="in the midst"):
        trainer.step(2)


def test_an_update_that_breaks_off_leaves_a_state_of_no_step(
    tmp_path: Path, history: dict[int, list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path)
    break_off(trainer, monkeypatch)
    assert trainer.state.step is None
    trainer.state.step = 1  # as if nobody had cleared it: the check finds that
    assert wrong_live_state(trainer, history)


def test_a_copy_that_failed_leaves_the_state_of_the_step_before_and_no_snapshot(
    tmp_path: Path, history: dict[int, list[Tensor]]
) -> None:
    def fail() -> None:
        raise OSError("no page left")

    copier = ThreadCopier(fail)
    trainer = Trainer(tmp_path, copier=copier)
    trainer.step(1)
    with pytest.raises(OSError, match="no page left"):
        trainer.step(2)
    assert trainer.state.step == 1
    assert not wrong_live_state(trainer, history)
    assert not trainer.snapshots[1][0].is_done()
    assert copier.close()


def test_a_step_that_is_no_number_changes_nothing(
    tmp_path: Path, history: dict[int, list[Tensor]]
) -> None:
    calls = iter(range(1000))
    trainer = Trainer(tmp_path)
    parameter = next(trainer.state.model.parameters())

    def spoil() -> None:
        if next(calls) == 1 and parameter.grad is not None:
            parameter.grad[0] = torch.nan

    trainer._collective = Collective(spoil)
    with pytest.raises(ArithmeticError, match="step 1 has gradient norm nan"):
        trainer.step(1)
    assert trainer.state.step == 0
    assert not wrong_live_state(trainer, history)


def _held(event: threading.Event) -> None:
    assert event.wait(30)
